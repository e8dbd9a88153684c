"""The tests that take several seconds of a core each: `make test` leaves them out, and so does CI;
`make slow` and `make check` run them.

Files, classes or functions, as pytest names them. What is here takes 2.5 s or more, and shorter
tests run the same code; of families of tests (``FAMILIES``) `make test` runs a part.
"""

SLOW = frozenset(
    {
        "tests/calibrate/inspection/test_calibration_report.py::test_a_large_table_is_quick",
        "tests/calibrate/inspection/test_calibration_report.py::"
        "test_every_profile_of_the_catalogue_can_be_shown",
        "tests/calibrate/scoring/test_scoring.py::TestPublished",
        "tests/calibrate/test_calibrate_profile.py::test_a_cpu_is_measured_fitted_and_used",
        "tests/calibrate/test_calibrate_profile.py::"
        "test_a_gpu_of_the_catalogue_keeps_its_data_sheet",
        "tests/calibrate/test_fit.py::test_a_parameter_that_changes_nothing_has_no_interval",
        "tests/calibrate/test_fit.py::test_known_parameters_of_a_gemm_are_recovered",
        "tests/calibrate/test_importer_vidur.py::test_fits_find_back_what_the_tables_were_made_of",
        "tests/calibrate/validation/test_engine_fit.py",
        "tests/export/test_pictures.py::test_a_page_of_a_decision_and_a_page_alone",
        "tests/export/test_pictures.py::test_a_run_has_a_picture_of_each_figure",
        "tests/metrics/test_verdict_known.py::test_waits_are_those_of_queueing_theory",
        "tests/planning/test_compare.py::test_the_bootstrap_covers_at_its_rate",
        "tests/planning/test_decision_notes.py::"
        "test_find_and_plan_say_that_they_set_few_requests_aside",
        "tests/planning/test_diagnose.py::"
        "test_advice_begins_with_the_least_that_meets_the_slo_and_its_commands_work",
        "tests/planning/test_diagnose.py::test_every_change_is_judged_as_run_judges_it",
        "tests/planning/test_diagnose.py::"
        "test_rejected_requests_are_named_first_with_the_setting_that_admits_them",
        "tests/planning/test_diagnose.py::"
        "test_where_the_slo_is_met_with_room_nothing_needs_to_change",
        "tests/planning/test_find.py::test_a_few_rejected_requests_are_named_in_the_answer",
        "tests/planning/test_find.py::test_a_load_is_simulated_until_it_is_decided",
        "tests/planning/test_find.py::test_the_highest_rate_of_one_server_is_the_analytic_one",
        "tests/planning/test_find.py::test_the_opening_of_a_closed_loop_does_not_count",
        "tests/planning/test_find.py::test_the_rate_is_that_of_a_fine_grid",
        "tests/planning/test_find.py::test_the_same_question_has_the_same_answer",
        "tests/planning/test_find.py::test_without_an_slo_the_highest_stable_rate_is_found",
        "tests/planning/test_find_fleets.py::"
        "test_the_highest_load_of_pools_apart_grows_with_the_role_that_limits",
        "tests/planning/test_find_lasts.py",
        "tests/planning/test_plan.py::test_a_constraint_in_between_takes_more_replicas",
        "tests/planning/test_plan.py::test_a_format_that_a_gpu_lacks_is_said",
        "tests/planning/test_plan.py::test_constraints_rule_out_fleets",
        "tests/planning/test_plan.py::test_every_layout_is_ranked_or_rejected_with_a_reason",
        "tests/planning/test_plan.py::test_plan_ranks_layouts_of_experts",
        "tests/planning/test_plan.py::test_precisions_are_choices",
        "tests/planning/test_plan.py::test_the_screening_never_loses_the_winner",
        "tests/planning/test_plan_lasts.py",
        "tests/planning/test_plan_prices.py::test_below_its_price_another_fleet_is_the_cheapest",
        "tests/planning/test_plan_ties.py::test_the_headline_says_that_others_are_as_cheap",
        "tests/planning/test_short_runs.py::test_diagnose_says_what_run_says_of_a_short_run",
        "tests/planning/test_split.py::test_the_answer_says_what_both_in_one_would_cost",
        "tests/planning/test_split.py::test_the_numbers_are_the_cheapest_of_all_that_hold",
        "tests/planning/test_sweep_dask.py",
        "tests/reports/test_library.py::test_the_bundle_draws_them",
        "tests/reports/test_pages_browser.py::test_a_page_of_every_kind",
        "tests/reports/test_pages_browser.py::test_unusual_results_open_without_a_complaint",
        "tests/reports/test_report.py::test_ten_times_the_requests_are_not_even_twice_the_work",
        "tests/reports/test_report_browser.py::test_hostile_names_in_the_dark",
        "tests/reports/test_report_browser.py::"
        "test_nothing_is_wider_than_the_page_and_no_figure_is_cut",
        "tests/reports/test_report_sections.py::test_a_hundred_thousand_requests_draw_few_points",
        "tests/results/test_damaged_files.py::test_damaged_runs",
        "tests/results/test_killed.py::test_a_kill_before_any_file_has_its_name_is_survived",
        "tests/results/test_repetitions.py::test_19_of_20_intervals_cover_the_truth",
        "tests/selftest/test_selftest.py::test_the_real_thing",
        "tests/serve/test_hostile.py::test_a_thousand_hostile_clients_stall_nobody",
        "tests/serve/test_operators.py::"
        "test_a_fleet_scales_itself_and_its_session_is_the_run_of_its_trace",
        "tests/serve/test_operators.py::test_an_autoscaler_follows_the_queue",
        "tests/test_ends.py::test_find_gives_the_highest_load_at_both_ends",
        "tests/test_golden.py::test_without_wide_vectors_the_results_are_the_same",
        "tests/test_notebooks.py::test_what_is_committed_is_what_comes_out",
        "tests/test_questions.py::test_prices_in_python_are_those_of_the_command",
    }
)


THOROUGH = (
    "tests/calibrate/scoring/test_scoring.py::TestPublished::test_closed_loop_and_online",
    "tests/planning/test_find_lasts.py::test_the_interval_contains_the_analytic_rate",
    "tests/test_notebooks.py::test_what_is_committed_is_what_comes_out[05_choosing_hardware]",
)
"""The three that take half a minute and more each; with every pair of features by itself, which
`make test` runs in groups, and the rest of ``FAMILIES`` they are what `make thorough` runs, and CI
does not."""

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
    "tests/reports/test_pages_browser.py::test_nothing_is_cut_on_any_screen": 3,
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


def is_slow(name: str) -> bool:
    """Whether the test with that node id is among them.

    >>> is_slow("tests/planning/test_find_lasts.py::test_anything[1-2]")
    True
    """
    path, *rest = name.partition("[")[0].split("::")
    return any("::".join([path, *rest[:depth]]) in SLOW for depth in range(len(rest) + 1))
