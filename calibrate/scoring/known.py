"""Adds to the columns of a published row: facts from its notes and its publication.

``KNOWN`` is about whole publications, never of single rows; whatever it changes is stated as a
remark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from calibrate.scoring.table import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Settings that the columns of a row do not state; empty or None where nothing is known.

    The formats of ``weights``, ``experts`` and ``kv_cache``, figures of the ``whole_system`` where
    one of a GPU is announced, ``more`` requests in flight than stated, ``static`` scales of
    activations in the checkpoint, ``peers`` whether cards on PCIe reach each other directly, a
    ``client`` that is published with the source, ``asynchronous`` scheduling that the engine was
    set to use, a release that plans ``ahead`` by itself, whether the clients stated are the
    requests that run at once (``slots``), experts in 4 bits by the library ``marlin``, whether the
    data ranks stated were started (``ranks``), whether each GPU has other experts
    (``experts_apart``) whatever is stated, whether GPUs are stated ``twice``, times the ranks that
    their experts are spread over, what the engine was given of its memory and of the tokens of a
    pass, or how many tokens a pass has ``beside`` the longest prompt and one for each client,
    whether prompts are ``whole`` in a pass, for how many iterations they wait until what share of a
    pass is full (``batch_wait``), whether each tensor rank is a data rank (``by_requests``), for
    how many iterations prompts of data ranks wait for each other, and for how many more once every
    rank has one (``ranks_wait``), lengths that are ``fixed`` whatever the notes suppose, whether
    those stated are the means of ``texts``, the 95th percentile of output lengths in means
    (``output_tail``), how many ``queries`` came at a rate, how many tokens are ``streamed`` at a
    time, the first ones too, whether the engine ``sorts`` all logits to choose a token, and whether
    its attention is ``triton``'s.
    """

    weights: str = ""
    experts: str = ""
    kv_cache: str = ""
    whole_system: bool = False
    more: int = 0
    static: bool = False
    peers: bool | None = None
    client: bool = False
    asynchronous: bool = False
    ahead: bool = False
    slots: bool = True
    marlin: bool = False
    ranks: bool = True
    experts_apart: bool = False
    twice: bool = False
    memory_fraction: float | None = None
    max_num_batched_tokens: int | None = None
    beside: int | None = None
    whole: bool = False
    fixed: bool = False
    texts: bool = False
    output_tail: float | None = None
    queries: int | None = None
    policy: str = ""
    batch_wait: tuple[int, float] | None = None
    by_requests: bool = False
    ranks_wait: tuple[int, int] | None = None
    streamed: int = 1
    sorts: bool = False
    triton: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement(Facts):
    """All that is known of one row: the facts of its publication, and settings in its notes.

    ``spread`` are the shortest and the longest length as shares of the nominal one; ``remarks`` say
    how the facts are known.
    """

    spread: tuple[float, float] | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """The ``facts`` of a publication, that is of rows whose cells match ``where`` (column:
    pattern), whatever they state. ``why`` says how that is known."""

    where: tuple[tuple[str, str], ...]
    why: str
    facts: Facts

    def covers(self, row: Row) -> bool:
        """Whether ``row`` belongs to the publication."""
        return all(re.search(pattern, row[column], re.I) for column, pattern in self.where)


OF_THE_TOOL = (
    "an iteration has room for a prompt, a token of each client and 1,500 more: the source's own "
    "tool starts its servers so (ai-dynamo/aiconfigurator, generator/rule_plugin, max_num_tokens)"
)
"""How it is known what ``beside`` says."""

CLIENT_OF_THE_TOOL = (
    "each client waits for its answer and sends ten requests, all of one length and with answers "
    "of one: the source's own client (ai-dynamo/aiconfigurator, "
    "eval/benchmarks/genai_perf_runner.py)"
)
"""How it is known what the clients of a source did that publishes the tool it measures with."""

CLIENT_OF_INFERENCEX = (
    "each client waits for its answer and sends ten requests, of 0.8 to 1 of the length stated: "
    "InferenceX's own client"
)
"""The same of another source; where its script is follows."""

SORTED = (
    "vLLM sorts all logits for it until its pull request 33538 of February 2026, unless it is set "
    "to take FlashInfer's sampler (v1/sample/ops/topk_topp_sampler.py)"
)
"""How it is known what ``sorts`` says."""

MLPERF = (
    "the submission's own settings (mlcommons/inference_results_v4.1, closed/NVIDIA: configs, "
    "code/llama2-70b/tensorrt/builder.py"
)
"""Where those of MLPerf's runs are published; none of its results is read there. To be closed by a
bracket."""

SCRIPT_OF_70B = (
    "InferenceX, benchmarks/70b_fp8_h200_trt_slurm.sh as in faradawn/InferenceMAX 9596d23d"
)
"""Where the settings of TensorRT-LLM with Llama-3.1-70B on H200 are published."""

KNOWN = (
    Known(
        (("engine", "mlperf"), ("model", "llama2-70b"), ("arrival", "poisson")),
        "270,336 requests come at the rate, the least that LoadGen sends in this scenario "
        "(mlperf.conf); those stated are the samples that it holds in memory "
        "(performance_sample_count_override). The rate completed, 74.42 of 75 a second, shows it: "
        "the last answers take half a minute of that many",
        Facts(queries=270_336),
    ),
    Known(
        (("engine", "mlperf"), ("model", "mixtral"), ("arrival", "poisson")),
        f"835,200 requests come at the rate, those of 2,400 seconds: {MLPERF}, min_duration)",
        Facts(queries=835_200),
    ),
    Known(
        (("engine", "mlperf"), ("model", "llama2-70b"), ("arrival", "t=0")),
        "211,200 requests are sent at once, 1.1 times the 80 a second that are expected in 2,400 "
        f"seconds: LoadGen's rule (test_settings_internal.cc), and {MLPERF}, offline_expected_qps)",
        Facts(queries=211_200),
    ),
    Known(
        (("engine", "mlperf"), ("model", "mixtral"), ("arrival", "t=0")),
        "971,520 requests are sent at once, 1.1 times the 368 a second that are expected in 2,400 "
        "seconds, and an iteration has 8,192 tokens: LoadGen's rule (test_settings_internal.cc), "
        f"and {MLPERF}, offline_expected_qps, max_num_tokens)",
        Facts(queries=971_520, max_num_batched_tokens=8192),
    ),
    Known(
        (("engine", "mlperf"),),
        f"requests run as the memory allows and pause where it ends, and prompts are not cut: "
        f"{MLPERF}, harness_flags, trtllm_batch_sched_policy max_util)",
        Facts(policy="max-utilization", whole=True, max_num_batched_tokens=16384),
    ),
    Known(
        (("engine", "mlperf"), ("model", "llama2-70b")),
        "output lengths are lognormal with a 95th percentile of 2.22 means: published percentiles "
        "of the latency over the token time, 250 (p50), 524 (p90) and 926 (p99) tokens",
        Facts(output_tail=2.22),
    ),
    Known(
        (("engine", "mlperf"), ("model", "mixtral")),
        "output lengths are lognormal with a 95th percentile of 2.5 means: published percentiles "
        "of the latency over the token time, 114 (p50), 283 (p90) and 594 (p99) tokens",
        Facts(output_tail=2.5),
    ),
    Known(
        (("engine", "triton"), ("isl", "^202$"), ("osl", "^214$")),
        "these are the means of ShareGPT's texts, whose lengths differ: 500 requests at 4 to 32 a "
        "second and all at once, 462 and 16 tokens, 462 and 256, and ShareGPT are vLLM's nightly "
        "benchmark of 2024 (vllm-project/vllm, .buildkite/nightly-benchmarks), which this table "
        "repeats by all signs. Answers are lognormal with a 95th percentile of 2.5 means, as "
        "10,000 of them are by Llama 2's tokeniser, within vLLM's limits of lengths",
        Facts(texts=True, output_tail=2.5),
    ),
    Known(
        (("model", "gpt-oss"),),
        "the experts are in mxfp4 and all else in bf16, as in the one published checkpoint",
        Facts(weights="bf16", experts="mxfp4"),
    ),
    Known(
        (("model", "deepseek-(r1|v3)|qwen3-235b-a22b-fp8|minimax-m2"), ("weight_dtype", "fp8")),
        "the weights are in fp8 by blocks, as in the published checkpoint",
        Facts(weights="fp8-block", experts="fp8-block"),
    ),
    Known(
        (
            ("engine", "^trtllm"),
            ("model", "llama"),
            ("weight_dtype", "gemm=fp8"),
            ("notes", "InferenceMAX"),
        ),
        "the scales of fp8 activations are in the checkpoint: that source serves those of NVIDIA's "
        "ModelOpt, and token times leave no room for a conversion before each product",
        Facts(static=True),
    ),
    Known(
        (("engine", "^trtllm"), ("model", "llama.*70b"), ("notes", "InferenceMAX")),
        "an iteration has 16,384 tokens, and prompts are not cut: the source starts its servers so "
        f"({SCRIPT_OF_70B}; a later version of the script has as many as the longest request)",
        Facts(whole=True, max_num_batched_tokens=16384),
    ),
    Known(
        (
            *(("engine", "^trtllm"), ("model", "llama.*70b"), ("notes", "InferenceMAX")),
            *(("isl", "^1024$"), ("osl", "^1024$"), ("tp", "^[124]$")),
        ),
        "prompts wait for up to 20 iterations, until 0.9 of an iteration's tokens are there: the "
        f"source starts its servers so for these lengths on less than 8 GPUs ({SCRIPT_OF_70B})",
        Facts(batch_wait=(20, 0.9)),
    ),
    Known(
        (("engine", "tensorrt"), ("engine_version", r"^0\.[56]\."), ("tp", "^[^1]")),
        "the figure is that of all GPUs together, although one of a GPU is announced: later "
        "releases on the same hardware give a quarter of it with four GPUs",
        Facts(whole_system=True),
    ),
    Known(
        (("engine", "^trtllm"), ("source_path", "silicon_sample"), ("notes", "aic-auto-gap")),
        "one request more is in flight than stated, and waits for a slot: the time to first token "
        "grows with the length of answers as such a wait does",
        Facts(more=1),
    ),
    Known(
        (("engine", "^trtllm"), ("source_path", "silicon_sample"), ("notes", "aic-auto-gap")),
        f"{OF_THE_TOOL}; prompts are not cut (backend_templates/trtllm/extra_engine_args.1.0.0rc3)",
        Facts(beside=1500, whole=True),
    ),
    Known(
        (("engine", "^vllm"), ("model", "qwen3-"), ("source_path", "silicon_sample")),
        OF_THE_TOOL,
        Facts(beside=1500),
    ),
    Known(
        (("source_path", "silicon_sample"), ("notes", "aic-auto-gap")),
        CLIENT_OF_THE_TOOL,
        Facts(client=True, fixed=True),
    ),
    Known(
        (("model", "qwen3-235b"), ("source_path", "silicon_sample")),
        f"{CLIENT_OF_THE_TOOL}, whatever protocol the table supposes",
        Facts(client=True, fixed=True),
    ),
    Known(
        (("model", "minimax-m2|deepseek-v3"), ("source_path", "silicon_sample")),
        f"{CLIENT_OF_INFERENCEX} (benchmarks/benchmark_lib.sh, run_benchmark_serving, as its "
        "scripts for these models call it)",
        Facts(client=True),
    ),
    Known(
        (("arrival", "disaggregated"), ("source_path", "silicon_sample")),
        f"{CLIENT_OF_INFERENCEX}, by the tool that starts these workers (NVIDIA/srt-slurm, "
        "sa-bench/bench.sh)",
        Facts(client=True),
    ),
    Known(
        (
            ("engine", "^(trtllm|tensorrt)"),
            ("arrival", "disaggregated"),
            ("source_path", "silicon_sample"),
        ),
        "the KV cache is in fp8, as the source's recipes for these workers set it "
        "(ishandhanani/srt-slurm, recipes/trtllm/h200 at 4893f83e)",
        Facts(kv_cache="fp8"),
    ),
    Known(
        (
            ("engine", "^(vllm|sglang)"),
            ("model", "qwen3-235b.*fp8"),
            ("source_path", "silicon_sample"),
        ),
        "the KV cache is in fp8: the source's own tool takes it for models in fp8 by blocks whose "
        "checkpoint says nothing (aiconfigurator-core 0.12, sdk/models/helpers.py), and starts its "
        "servers with what it takes (ai-dynamo/aiconfigurator, backend_templates)",
        Facts(kv_cache="fp8"),
    ),
    Known(
        (
            *(("engine", "^sglang"), ("engine_version", r"^0\.5\.6"), ("gpu", "^h[12]00")),
            *(("model", "qwen3-235b.*fp8"), ("source_path", "silicon_sample")),
        ),
        "attention is Triton's: of the releases of the source's own tool that have timings of this "
        "one of SGLang, 0.5.0 and 0.6.0 ask for that cache in e5m2 (generator/rule_plugin/"
        "sglang.rule; 0.7.0 for e4m3), and for e5m2 a server leaves FlashAttention 3 for Triton "
        "(sgl-project/sglang, server_args.py); token times grow with one sequence's context as "
        "Triton's do, whatever the batch and the GPUs",
        Facts(triton=True),
    ),
    Known(
        (
            ("engine", "^vllm"),
            ("engine_version", r"^(0\.1[4-9]|0\.[2-9]\d|[1-9])"),
            ("tp", r"^\d*$"),
        ),
        "an iteration is planned while the one before it runs, so that a newcomer waits for one "
        "more: the default since 0.14 (vLLM pull request 27614)",
        Facts(ahead=True),
    ),
    Known(
        (
            *(("engine", "^vllm"), ("engine_version", r"^0\.1[0-5]\.")),
            *(("model", "qwen3-"), ("source_path", "silicon_sample")),
        ),
        "tokens are chosen by top-k and top-p: the source's client says nothing of sampling "
        "(ai-dynamo/aiconfigurator, eval/benchmarks/genai_perf_runner.py), so that the server does "
        f"as the checkpoint's generation_config.json says (top_k 20, top_p 0.95). {SORTED}",
        Facts(sorts=True),
    ),
    Known(
        (("engine", "^vllm"), ("source_repo", "^ml-energy/")),
        "tokens are chosen by top-p: the benchmark asks for 0.95 unless it is given another "
        f"(ml-energy/benchmark, mlenergy/llm/benchmark.py). {SORTED}",
        Facts(sorts=True),
    ),
    Known(
        (("engine", "tensorrt"), ("gpu", "^l40s"), ("tp", "^[^1]")),
        "the cards reach each other directly: the tokens of these runs need sums of 8 GB/s, and "
        "NCCL reaches 4.6 GB/s on four such cards that do not (aiconfigurator-core tables)",
        Facts(peers=True),
    ),
    Known(
        (("engine", "^vllm"), ("source_repo", "^ml-energy/")),
        "scheduling is asynchronous: the benchmark's configurations of vLLM say so",
        Facts(asynchronous=True),
    ),
    Known(
        (
            ("engine", "^vllm"),
            ("model", "gpt-oss"),
            ("batch_or_concurrency", "^512$"),
            ("notes", "InferenceMAX"),
        ),
        "fewer requests run at once than clients are stated: mean times to first token are 4.2 to "
        "4.8 times the answers', as when ten requests for each slot are sent together, and token "
        "times less than the memory allows for 512 sequences",
        Facts(slots=False),
    ),
    Known(
        (("engine", "^vllm"), ("model", "gpt-oss"), ("gpu", "^h100"), ("notes", "InferenceMAX")),
        "the experts go through Marlin: the source starts its servers with VLLM_MXFP4_USE_MARLIN=1 "
        "(InferenceX, benchmarks/gptoss_fp4_h100.sh)",
        Facts(marlin=True),
    ),
    Known(
        (("engine", "^trtllm"), ("engine_version", r"^1\.1\.0"), ("model", "deepseek-v3")),
        "8 GPUs, whatever is stated: 64 are those 8 times the 8 ranks of their experts. All token "
        "times are within 2 % of those stated for 8 GPUs, and the source's servers of that engine "
        "have 8 (InferenceX, benchmarks/single_node/dsr1_fp8_h200_trt.sh)",
        Facts(twice=True),
    ),
    Known(
        (("engine", "^vllm"), ("model", "minimax-m2"), ("gpu", "^h100")),
        "no server has data ranks, whatever is stated: the source starts them with tensor and "
        "expert parallelism alone (InferenceX, benchmarks/single_node/minimaxm2.5_fp8_h100.sh)",
        Facts(ranks=False),
    ),
    Known(
        (("engine", "^sglang"), ("model", "deepseek-(r1|v3)"), ("gpu", "^h200"), ("tp", r"^\d+$")),
        "prompts are cut into 32,768 tokens, and 0.82 of the memory is used: the source starts its "
        "servers so (InferenceX, benchmarks/single_node/dsr1_fp8_h200.sh)",
        Facts(max_num_batched_tokens=32768, memory_fraction=0.82),
    ),
    Known(
        (("engine", "^trtllm"), ("model", "deepseek-(r1|v3)"), ("gpu", "^h200"), ("tp", r"^\d+$")),
        "0.75 of the free memory is for KV, which is in fp8, experts are spread over all GPUs, "
        "prompts are not cut, and an iteration has room for one, a token of each client and 64 to "
        "127 more: the source starts its servers so (InferenceX, "
        "benchmarks/dsr1_fp8_h200_trt_slurm.sh as in InferenceMAX/InferenceMAX at ff7e4623)",
        Facts(memory_fraction=0.75, kv_cache="fp8", experts_apart=True, whole=True, beside=64),
    ),
    Known(
        (
            *(("engine", "^trtllm"), ("model", "deepseek-v3"), ("gpu", "^h200"), ("tp", r"^\d+$")),
            *(("isl", "^8192$"), ("batch_or_concurrency", "^64$")),
        ),
        "attention is split by requests, and prompts of the ranks wait for each other for up to 60 "
        "iterations: the source starts its servers so for more than 32 clients with these prompts "
        "(the same script)",
        Facts(by_requests=True, ranks_wait=(60, 0)),
    ),
    Known(
        (("engine", "tensorrt"), ("engine_version", "^>=1.1"), ("model", "deepseek-r1")),
        "prompts of the ranks wait for each other for up to 60 iterations, by the options that the "
        "source was measured with (NVIDIA/TensorRT-LLM, docs/source/developer-guide/"
        "perf-overview.md at 03e27c7d, attention_dp_config)",
        Facts(policy="guaranteed-no-evict", ranks_wait=(60, 0)),
    ),
    Known(
        (("engine", "^trtllm"), ("model", "deepseek-v3"), ("gpu", "^h200"), ("tp", r"^\d+$")),
        "the first token of an answer comes with the tenth: the source's servers stream ten at a "
        "time (stream_interval in the same script), and mean times to first token are longer than "
        "queue and prompt take by 10 to 12 token times, whatever the prompts and the clients up to "
        "16, in both releases",
        Facts(streamed=10),
    ),
)

_SPREAD = re.compile(r"uniform in \[([\d.]+),\s*([\d.]+)\]\s*\*?\s*nominal")
_FRACTION = re.compile(
    r"(?:mem(?:ory)?[-_](?:util\w*|fraction)|kv frac|mem_fraction)\D{0,3}(0\.\d+)"
)
_TOKENS = re.compile(r"max[-_]num[-_]batched[-_]tokens\D{0,3}(\d+)")


def statement(row: Row) -> Statement:
    """What is known of ``row`` in addition to its columns."""
    notes = row["notes"]
    known = [each for each in KNOWN if each.covers(row)]
    facts = [each.facts for each in known]
    spread, fixed = _SPREAD.search(notes), any(each.fixed for each in facts)
    fraction, tokens = _FRACTION.search(notes), _TOKENS.search(notes)
    return Statement(
        weights=next((each.weights for each in facts if each.weights), ""),
        experts=next((each.experts for each in facts if each.experts), ""),
        kv_cache=next((each.kv_cache for each in facts if each.kv_cache), ""),
        whole_system=any(each.whole_system for each in facts),
        more=sum(each.more for each in facts),
        static=any(each.static for each in facts),
        peers=next((each.peers for each in facts if each.peers is not None), None),
        client=any(each.client for each in facts),
        asynchronous=any(each.asynchronous for each in facts),
        ahead=any(each.ahead for each in facts),
        slots=all(each.slots for each in facts),
        output_tail=next((each.output_tail for each in facts if each.output_tail), None),
        queries=next((each.queries for each in facts if each.queries), None),
        policy=next((each.policy for each in facts if each.policy), ""),
        batch_wait=next((each.batch_wait for each in facts if each.batch_wait), None),
        by_requests=any(each.by_requests for each in facts),
        ranks_wait=next((each.ranks_wait for each in facts if each.ranks_wait), None),
        streamed=max((each.streamed for each in facts), default=1),
        sorts=any(each.sorts for each in facts),
        triton=any(each.triton for each in facts),
        beside=next((each.beside for each in facts if each.beside is not None), None),
        whole=any(each.whole for each in facts),
        fixed=fixed,
        texts=any(each.texts for each in facts),
        spread=(float(spread[1]), float(spread[2])) if spread and not fixed else None,
        marlin=any(each.marlin for each in facts),
        ranks=all(each.ranks for each in facts),
        experts_apart=any(each.experts_apart for each in facts),
        twice=any(each.twice for each in facts),
        memory_fraction=float(fraction[1])
        if fraction
        else next((each.memory_fraction for each in facts if each.memory_fraction), None),
        max_num_batched_tokens=int(tokens[1])
        if tokens
        else next((e.max_num_batched_tokens for e in facts if e.max_num_batched_tokens), None),
        remarks=tuple(each.why for each in known),
    )
