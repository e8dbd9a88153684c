"""Runs the continuous batching of transformers step by step, and records what each step computed.

The manager's own batch processor is driven from this thread, step by step, as its background thread
drives it: take in requests and schedule, lay out tensors, forward and sample, hand out tokens.
Watching changes nothing: its scheduler and the code that frees the memory of requests are called
through. Times are those of the clock that is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from calibrate.lazy_torch import torch
from calibrate.observers import lazy_transformers
from calibrate.observers.engine_loop import ObservedStep
from calibrate.observers.hf_config import config
from calibrate.observers.ledger import LedgerRow
from calibrate.observers.transformers_settings import DTYPES, TransformersSettings
from sim.errors import InfersimError, UsageError
from sim.request import Request
from sim.specs.model import ModelSpec

NEEDED = ("prepare_next_batch", "_generation_step", "update_batch", "offloading_manager")
"""The parts of the batch processor that are driven or watched; releases may rename them."""


def make_model(spec: ModelSpec, precision: str, device: str, seed: int, attention: str) -> Any:
    """A model of that shape with random weights under ``seed``, on ``device``, ready to run.

    ``attention`` is transformers' name of an attention function.
    """
    written = config(spec)
    kind = written.pop("model_type")
    automatic = lazy_transformers.module("transformers")
    shape = automatic.AutoConfig.for_model(kind, **written)
    dtype = getattr(torch, DTYPES[precision])
    where = torch.device(device)
    with torch.random.fork_rng(devices=[where] if where.type == "cuda" else []), where:
        torch.manual_seed(seed)
        model = automatic.AutoModelForCausalLM.from_config(
            shape, dtype=dtype, attn_implementation=attention
        )
    return model.eval()


@dataclass(slots=True)
class _Decision:
    """The scheduler's choice: for each request its state, the tokens to compute and those before;
    which requests lost their memory; when it was decided."""

    chosen: list[tuple[Any, int, int, bool]] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)
    at: float = 0.0


class ContinuousBatches:
    """The continuous batching manager of ``model``; ``now`` tells the time of the run.

    ``timestamps`` are transformers' own of each token, by the number of the request, once it is
    finished (s of ``time.perf_counter``); after a loss of memory only of those that came then.
    """

    name = "transformers"

    def __init__(
        self, model: Any, settings: TransformersSettings, sampling: str, now: Callable[[], float]
    ) -> None:
        generation = lazy_transformers.module("transformers.generation.configuration_utils")
        try:
            self._manager = model.init_continuous_batching(
                generation_config=generation.GenerationConfig(
                    do_sample=sampling == "random", top_k=0, eos_token_id=-1, max_new_tokens=1
                ),
                continuous_batching_config=generation.ContinuousBatchingConfig(
                    **settings.continuous()
                ),
            )
            self._processor = self._manager._create_batch_processor()
        except (AttributeError, TypeError) as error:
            raise _unknown(error) from None
        except (MemoryError, ValueError, RuntimeError) as error:
            raise UsageError(f"--engine transformers does not start: {error}") from None
        if missing := [name for name in NEEDED if not hasattr(self._processor, name)]:
            raise _unknown(f"no {', '.join(missing)}")
        self._model = model
        self._now = now
        self._scheduler = self._processor.scheduler
        self._cache = self._processor.cache
        self._decision = _Decision()
        self._schedule = self._scheduler.schedule_batch
        self._offload = self._processor.offloading_manager.offload_requests
        self._scheduler.schedule_batch = self._on_schedule
        self._processor.offloading_manager.offload_requests = self._on_offload
        self.timestamps: dict[int, list[float]] = {}

    @property
    def num_blocks(self) -> int:
        """Blocks of its cache that requests can have."""
        return int(self._cache.num_blocks)

    def add(self, request: Request, prompt: list[int]) -> None:
        """``request`` arrives."""
        self._manager.add_request(
            prompt,
            request_id=str(request.id),
            max_new_tokens=request.output_tokens,
            record_timestamps=True,
        )

    def busy(self) -> bool:
        """Whether any request is unfinished."""
        return bool(self._scheduler.has_pending_requests() or self._manager.input_queue.qsize())

    def step(self) -> ObservedStep | None:
        """One iteration; None if no request was computed in it."""
        self._decision = _Decision()
        with torch.no_grad():
            try:
                going = self._processor.prepare_next_batch()
            except RuntimeError as error:
                raise InfersimError(f"transformers gives up: {error}") from None
            prepared = self._now()
            if not going:
                return None
            held = self._cache.num_blocks - self._cache.get_num_free_blocks()
            running, waiting = (
                len(self._scheduler.active_requests),
                len(self._scheduler.waiting_requests),
            )
            self._processor._generation_step(self._model)
            sampled = self._now()
            self._processor.update_batch()
        self._collect()
        made = self._decision
        ran = LedgerRow(
            tokens={int(state.request_id): count for state, count, _, _ in made.chosen},
            before={int(state.request_id): before for state, _, before, _ in made.chosen},
            sampled={
                int(state.request_id): [state.generated_tokens[-1]] if samples else []
                for state, _, _, samples in made.chosen
            },
            preempted=tuple(int(name) for name in made.preempted),
            running=running,
            waiting=waiting,
            reserved=held * self._cache.block_size,
        )
        return ObservedStep(ran, made.at, prepared, sampled)

    def close(self) -> None:
        """Give its memory back."""
        self._manager.destroy()
        self._manager.batch_processor = None

    def _collect(self) -> None:
        """Take finished requests from its queue, with the times of their tokens."""
        results = self._manager.output_router.output_queue
        while results.qsize():
            result = results.get()
            if result.error is not None:
                raise InfersimError(
                    f"transformers could not serve request {result.request_id}: {result.error}"
                )
            self.timestamps[int(result.request_id)] = result.timestamps

    def _on_schedule(self, *args: Any) -> Any:
        made = self._schedule(*args)
        if made[0] is not None:
            self._decision.chosen = [
                (one.state, one.query_length, one.state.position_offset, one.has_new_token)
                for one in made[0]
            ]
        self._decision.at = self._now()
        return made

    def _on_offload(self) -> Any:
        before = list(self._scheduler.active_requests)
        count = self._offload()
        active = self._scheduler.active_requests
        self._decision.preempted += [name for name in before if name not in active]
        return count


def _unknown(found: object) -> UsageError:
    """The error for a release of transformers that is not supported here."""
    return UsageError(
        f"--engine transformers: release {lazy_transformers.version()} has a continuous "
        f"batching that cannot be driven here ({found}); 5.17 is known to work"
    )
