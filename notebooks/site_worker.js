// Runs the search of the documentation site in a frame where a page is opened from the disk: there
// browsers start no workers. The script sees the names of a worker: postMessage and addEventListener.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => {
        const message = new MessageEvent("message", { data });
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      };
      const script = inside.document.createElement("script");
      script.src = url;
      this.ready = new Promise((loaded) => (script.onload = loaded));
      inside.document.body.append(script);
      this.inside = inside;
      this.frame = frame;
    }

    postMessage(data) {
      this.ready.then(() =>
        this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })),
      );
    }

    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
