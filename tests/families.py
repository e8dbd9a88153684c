"""Families of tests of which `make test` runs a part; `make thorough` runs the others.

A test of 2.5 s or more is marked ``slow`` where it is written: `make test` and CI leave it out, and
`make slow` and `make check` run it. One of half a minute or more is marked ``thorough``.
"""

FAMILIES = {
    "tests/calibrate/engine/test_engine_drafts.py::"
    "test_the_simulator_told_what_was_accepted_runs_the_same_batches": 2,
    "tests/calibrate/engine/test_engine_drafts.py::"
    "test_the_tokens_are_those_of_the_target_alone": 3,
    "tests/calibrate/engine/test_engine_kinds.py::test_chunks_and_decodes_in_any_blocks": 2,
    "tests/calibrate/engine/test_engine_kinds.py::test_preempted_requests_go_on_where_they_were": 2,
    "tests/calibrate/engine/test_engine_kinds.py::test_preemption_by_rank": 2,
    "tests/calibrate/engine/test_engine_kinds.py::test_whole_batches": 2,
    "tests/calibrate/engine/test_engine_run.py::"
    "test_batches_of_other_kinds_of_models_are_those_of_the_simulator": 2,
    "tests/calibrate/engine/test_engine_run.py::"
    "test_observed_iterations_are_predicted_as_the_simulator_timed_them": 2,
    "tests/calibrate/engine/test_engine_run.py::"
    "test_the_batches_are_those_of_the_simulator_step_by_step": 2,
    "tests/calibrate/engine/test_engine_run.py::test_times_are_those_of_the_iterations": 2,
    "tests/calibrate/test_bench_by_sequence.py::test_attention_through_a_window": 2,
    "tests/calibrate/validation/test_validation.py::test_a_constant_per_iteration_is_found": 2,
    "tests/calibrate/validation/test_validation.py::test_other_terms_are_found": 2,
    "tests/calibrate/validation/test_validation.py::test_requests_alone_tell_less_surely": 2,
    "tests/calibrate/validation/test_validation.py::test_the_same_engine_is_predicted_exactly": 2,
    "tests/commands/test_cli.py::test_a_full_disk_behind_stdout_is_an_error_and_the_run_is_kept": 2,
    "tests/commands/test_cli.py::test_a_reader_that_stops_early_is_no_error": 2,
    "tests/commands/test_cli.py::test_every_line_of_a_run_fits": 2,
    "tests/commands/test_cli.py::test_memory_and_roofline_fit_for_every_gpu": 4,
    "tests/cost/test_windows.py::test_operators_add_up": 3,
    "tests/loop/test_leaps.py::test_real_prices_give_the_same_times": 2,
    "tests/loop/test_live.py::test_a_session_is_the_run_of_its_trace": 2,
    "tests/loop/test_live.py::test_a_session_whose_replicas_are_steered_is_the_run_of_its_trace": 2,
    "tests/metrics/test_energy.py::test_it_is_the_sum_over_iterations": 2,
    "tests/metrics/test_long_enough.py::test_a_short_run_into_an_overload_does_not_meet_its_slo": 2,
    "tests/metrics/test_long_enough.py::test_all_of_a_run_asks_for_one_number_of_requests": 2,
    "tests/metrics/test_objectives.py::test_so_many_requests_decide_nine_times_in_ten": 2,
    "tests/metrics/test_verdict_known.py::test_one_server": 2,
    "tests/metrics/test_verdict_known.py::test_systems_with_batches": 2,
    "tests/planning/test_band_ends.py::test_slower_times_are_a_higher_load_with_tighter_limits": 2,
    "tests/planning/test_session_loads.py::"
    "test_an_slo_that_only_young_sessions_meet_is_left_open": 2,
    "tests/reports/test_numbered_variants.py::test_each_bar_has_its_own_name": 2,
    "tests/reports/test_pages_browser.py::test_nothing_is_cut_or_lies_on_words_on_any_screen": 3,
    "tests/results/test_damaged_files.py::test_damaged_measurements": 2,
    "tests/results/test_damaged_files.py::test_damaged_sweeps": 2,
    "tests/results/test_killed.py::test_a_killed_process_leaves_a_directory_that_says_so": 2,
    "tests/results/test_killed.py::test_a_signal_while_it_simulates_keeps_what_was_done": 2,
    "tests/scenario/test_bad_input.py::test_the_same_in_a_process_of_its_own": 3,
    "tests/schedulers/test_scheduler_oracle.py::test_memory_is_taken_from_the_last_by_rank": 2,
    "tests/schedulers/test_scheduler_oracle.py::"
    "test_several_prompts_advance_together_and_the_budget_reaches_everybody": 2,
    "tests/schedulers/test_sglang_conformance.py::"
    "test_no_page_or_lock_is_lost_on_random_requests": 2,
    "tests/selftest/test_theory.py::test_queue": 3,
    "tests/serve/test_command.py::test_a_signal_ends_it_and_the_run_is_written": 2,
    "tests/terminal/test_console_width.py::test_every_line_fits": 3,
    "tests/workload/test_workload.py::"
    "test_a_changing_rate_is_poisson_in_the_time_of_its_own_expectation": 2,
    "tests/workload/test_workload.py::test_values_do_not_depend_on_the_size_of_chunks": 2,
}
"""Tests over many parameters that take seconds together: `make test` runs one of so many that
follow each other, the others are thorough."""


def is_left_out(family: str, number: int) -> bool:
    """Whether the test of a family with that number is one of the others. Each time it is one
    further on, so that of several parameters each value comes up.

    >>> one = "tests/selftest/test_theory.py::test_queue"
    >>> [number for number in range(9) if not is_left_out(one, number)]
    [0, 4, 8]
    """
    each = FAMILIES.get(family, 1)
    return number % each != number // each % each
