"""A batching policy with its control, an order, a router and a metric of your own."""

from sim.routers import Router
from sim.schedulers import AsyncChunkedPrefill, Order


class Same(AsyncChunkedPrefill):
    """The rule of vLLM, unchanged: the control of an experiment.

    AsyncChunkedPrefill plans an iteration while the one before runs, as vLLM does since 0.14;
    ChunkedPrefill plans it afterwards.
    """

    shape = AsyncChunkedPrefill.shape  # what full batches look like: as before


class Ageing(AsyncChunkedPrefill):
    """The shortest prompt first; who has waited for two seconds goes before all of these.

    It sorts the queue of `order: fcfs`, the default.
    """

    shape = AsyncChunkedPrefill.shape
    patience = 2.0  # seconds

    def schedule(self, now):
        """Sort the queue for this moment (seconds since the start), then plan as vLLM does."""

        def rank(request):
            if request.preemptions or now - request.arrival > self.patience:
                return 0, request.arrival
            return 1, request.prompt_tokens

        ranked = sorted(self.waiting, key=rank)
        self.waiting.clear()
        self.waiting.extend(ranked)
        return super().schedule(now)


class ShortestPrompt(Order):
    """An order ranks each request once, when it arrives; the smallest rank goes first."""

    def key(self, request):
        """The length of the prompt: an engine knows it, unlike that of the answer."""
        return request.prompt_tokens


class ByTokens(Router):
    """The replica with the fewest prompt tokens in its queue; of equals, the emptiest cache."""

    def choose(self, request, targets):
        """The index in `targets` of the replica that serves `request`."""
        loads = [(target.queued_prompt_tokens, target.kv_used) for target in targets]
        return loads.index(min(loads))


def p95_ttft(result):
    """The 95th percentile of TTFT in milliseconds, of short and of long prompts."""
    requests = result.requests.query("not warmup")
    long = requests["prompt_tokens"] > 4000
    ttft_ms = 1000 * requests["ttft_s"]
    return {"short": ttft_ms[~long].quantile(0.95), "long": ttft_ms[long].quantile(0.95)}
