# %% [markdown]
# # 10. Does your client survive the fleet that you have not bought yet?
#
# A client, a gateway or an autoscaler meets queues, refusals and dying replicas for the
# first time in production, since the GPUs come last. `infersim serve` answers OpenAI's
# API with the timing of a simulated fleet, so that they can meet them on a laptop.
#
# The fleet here: Llama 3.1 70B on two replicas of four H100, each with eight slots.

# %%
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from threading import Event

import pandas as pd

import sim

FLEET = {
    "name": "fleet",
    "model": "llama-3.1-70b",
    "fleet": {"gpu": "h100-sxm", "tensor_parallel": 4, "replicas": 2},
    "router": "least-outstanding",
    "scheduler": {"max_num_seqs": 8},
    "max_model_len": 8192,
    "workload": {
        "arrivals": {"kind": "constant", "rate": 1},
        "prompt_tokens": {"kind": "fixed", "value": 400},
        "output_tokens": {"kind": "fixed", "value": 60},
    },
    "run": {"requests": 1, "warmup": 0},
}
folder = tempfile.TemporaryDirectory()
scenario, run = Path(folder.name, "fleet.yaml"), Path(folder.name, "session")
scenario.write_text(json.dumps(FLEET))
command = [sys.executable, "-m", "sim", "serve", str(scenario), "--port", "0", "-o", str(run)]
server = subprocess.Popen(
    [*command, "--control", "--max-waiting", "8", "--no-report"],
    stdout=subprocess.DEVNULL,
    stderr=subprocess.PIPE,
    text=True,
)
host, port = re.search(r"http://(\S+):(\d+)", server.stderr.readline()).groups()

# %% [markdown]
# In a terminal that is `infersim serve fleet.yaml --control --max-waiting 8`: clients may
# steer replicas, and while eight requests wait others are turned away.
#
# ## One request
#
# A client that streams, and says when the first token came.

# %%
PROMPT = "word " * 400


def answer(tokens=60, first=None):
    """The status of a request, the seconds to its first token, its tokens, and its error;
    ``first`` is set when that token has come."""
    body = {"prompt": PROMPT, "max_tokens": tokens, "ignore_eos": True, "stream": True}
    began, ttft, count = time.perf_counter(), None, 0
    connection = HTTPConnection(host, int(port))
    connection.request("POST", "/v1/completions", json.dumps(body))
    response = connection.getresponse()
    if response.status != 200:
        connection.close()
        wait = float(response.headers.get("Retry-After", 0))
        return {"status": response.status, "retry_after": wait, "tokens": 0}
    for line in response:
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            if "error" in event:
                return {"status": 503, "tokens": count, **event}
            count += 1
            ttft = ttft or time.perf_counter() - began
            if first is not None:
                first.set()
    connection.close()
    return {"status": 200, "ttft": ttft, "tokens": count}


one = answer()
predicted = sim.simulate(FLEET).summary["mean_ttft_ms"] / 1000
assert one["status"] == 200
assert one["tokens"] == 60
assert one["ttft"] > predicted  # never early; late by what this machine needs
print(f"predicted TTFT of a request that is alone: {predicted * 1000:.0f} ms")

# %% [markdown]
# No token leaves before the simulated fleet has made it. It leaves later by what this
# machine needs, about a millisecond on an idle one; the session's summary says how much.
#
# ## A burst
#
# Forty requests come within a second, to sixteen slots. A client that knows only "200 or
# lost" loses some of them; one that waits as long as `Retry-After` says loses none.


# %%
def asked_once(number):
    """The answer to request ``number`` of the burst."""
    time.sleep(0.02 * number)
    return answer(tokens=200) | {"attempts": 1}


def patient(number):
    """The same, however often it takes, and how often it took."""
    found = asked_once(number)
    while found["status"] != 200:
        time.sleep(found["retry_after"])
        found = answer(tokens=200) | {"attempts": found["attempts"] + 1}
    return found


with ThreadPoolExecutor(40) as clients:
    once = list(clients.map(asked_once, range(40)))
    again = list(clients.map(patient, range(40)))
lost = sum(each["status"] == 429 for each in once)
assert 0 < lost < 40  # slots and queue hold the others
assert all(each["tokens"] == 200 for each in again)
assert max(each["attempts"] for each in again) > 1
pd.DataFrame(
    {
        "asked": [40, 40],
        "lost": ["some", sum(each["status"] != 200 for each in again)],
    },
    index=["asks once", "waits and asks again"],
)

# %% [markdown]
# ## A replica dies
#
# In the middle of a long answer its replica fails. The stream has begun with status 200,
# so the bad news comes as an event. A client that looks at the status alone takes half
# an answer for a whole one.


# %%
def control(method, path):
    """The replicas, after what was asked for."""
    connection = HTTPConnection(host, int(port))
    connection.request(method, f"/control/replicas{path}")
    found = json.loads(connection.getresponse().read())["replicas"]
    connection.close()
    return found


first = Event()
with ThreadPoolExecutor(1) as client:
    long = client.submit(answer, tokens=400, first=first)
    first.wait()
    (busy,) = [each["replica"] for each in control("GET", "") if each["outstanding"]]
    states = [each["state"] for each in control("POST", f"/{busy}/fail")]
half = long.result()
assert sorted(states) == ["active", "failed"]
assert 0 < half["tokens"] < 400
print(re.sub(r"\d", "N", half["error"]["message"]))
whole = answer(tokens=100)
assert (whole["status"], whole["tokens"]) == (200, 100)  # the other replica serves on

# %% [markdown]
# `/control/scale` does for an autoscaler what Kubernetes would, and `/metrics` has vLLM's
# names, so that its rules are tested as they are.
#
# ## The session is a run
#
# When the server stops, what it served has the directory of any other run: `infersim
# report` draws it, `infersim compare` puts it next to others, and its `scenario.yaml`
# simulates the same arrivals again, clients that went away and the replica that died
# included. Nothing that failed is counted as served.

# %%
server.send_signal(signal.SIGINT)
server.wait()
server.stderr.close()
summary = json.loads((run / "summary.json").read_text())
served = sum(each["status"] == 200 for each in [one, *once, *again, whole])
assert summary["completed"] == served
lines = (run / "trace.jsonl").read_text().splitlines()
assert len(lines) == served + 1  # and the lost one
print(summary["infersim"]["failures"]["lost"], "answer was lost with its replica")
folder.cleanup()
