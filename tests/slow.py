"""The tests that take several seconds of a core each: `make test` leaves them out, and so does CI;
`make slow` and `make check` run them.

Files, classes or functions, as pytest names them.
"""

SLOW = frozenset(
    {
        "tests/calibrate/scoring/test_scoring.py::TestPublished",
        "tests/calibrate/test_calibrate_profile.py::test_a_cpu_is_measured_fitted_and_used",
        "tests/calibrate/test_calibrate_profile.py::"
        "test_a_gpu_of_the_catalogue_keeps_its_data_sheet",
        "tests/calibrate/test_fit.py::test_a_parameter_that_changes_nothing_has_no_interval",
        "tests/calibrate/test_fit.py::test_known_parameters_of_a_gemm_are_recovered",
        "tests/calibrate/validation/test_engine_fit.py",
        "tests/calibrate/verify/test_verify.py::test_a_verification_from_beginning_to_end",
        "tests/export/test_pictures.py::test_a_run_has_a_picture_of_each_figure",
        "tests/metrics/test_verdict_known.py::test_waits_are_those_of_queueing_theory",
        "tests/planning/test_compare.py::test_the_bootstrap_covers_at_its_rate",
        "tests/planning/test_diagnose.py::test_every_change_is_judged_as_run_judges_it",
        "tests/planning/test_diagnose.py::"
        "test_where_the_slo_is_met_with_room_nothing_needs_to_change",
        "tests/planning/test_find.py::test_a_few_rejected_requests_are_named_in_the_answer",
        "tests/planning/test_find.py::test_the_answer_says_how_it_was_found",
        "tests/planning/test_find.py::test_the_highest_rate_of_one_server_is_the_analytic_one",
        "tests/planning/test_find.py::test_the_opening_of_a_closed_loop_does_not_count",
        "tests/planning/test_find.py::test_the_rate_is_that_of_a_fine_grid",
        "tests/planning/test_find.py::test_the_same_question_has_the_same_answer",
        "tests/planning/test_find.py::test_without_an_slo_the_highest_stable_rate_is_found",
        "tests/planning/test_find_fleets.py::"
        "test_the_highest_load_of_pools_apart_grows_with_the_role_that_limits",
        "tests/planning/test_find_lasts.py",
        "tests/planning/test_diagnose.py::"
        "test_rejected_requests_are_named_first_with_the_setting_that_admits_them",
        "tests/planning/test_diagnose.py::"
        "test_advice_begins_with_the_least_that_meets_the_slo_and_its_commands_work",
        "tests/planning/test_plan.py::test_a_format_that_a_gpu_lacks_is_said",
        "tests/planning/test_decision_notes.py::"
        "test_find_and_plan_say_that_they_set_few_requests_aside",
        "tests/export/test_pictures.py::test_a_page_of_a_decision_and_a_page_alone",
        "tests/reports/test_pages_browser.py::test_a_page_of_every_kind",
        "tests/planning/test_plan.py::test_a_constraint_in_between_takes_more_replicas",
        "tests/planning/test_plan.py::test_constraints_rule_out_fleets",
        "tests/planning/test_plan.py::test_every_layout_is_ranked_or_rejected_with_a_reason",
        "tests/planning/test_plan.py::test_plan_ranks_layouts_of_experts",
        "tests/planning/test_plan.py::test_precisions_are_choices",
        "tests/planning/test_plan.py::test_the_screening_never_loses_the_winner",
        "tests/planning/test_plan_lasts.py",
        "tests/planning/test_plan_prices.py::test_below_its_price_another_fleet_is_the_cheapest",
        "tests/planning/test_plan_ties.py::test_the_headline_says_that_others_are_as_cheap",
        "tests/planning/test_split.py::test_the_numbers_are_the_cheapest_of_all_that_hold",
        "tests/planning/test_sweep_dask.py",
        "tests/reports/test_pages_browser.py::test_unusual_results_open_without_a_complaint",
        "tests/reports/test_report.py::test_ten_times_the_requests_are_not_even_twice_the_work",
        "tests/results/test_damaged_files.py::test_damaged_runs",
        "tests/results/test_killed.py::test_a_kill_before_any_file_has_its_name_is_survived",
        "tests/results/test_repetitions.py::test_19_of_20_intervals_cover_the_truth",
        "tests/serve/test_hostile.py::test_a_thousand_hostile_clients_stall_nobody",
        "tests/selftest/test_selftest.py::test_the_real_thing",
        "tests/test_ends.py::test_find_gives_the_highest_load_at_both_ends",
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
`make test` runs in groups, they are what `make thorough` runs, and CI does not."""


def is_slow(name: str) -> bool:
    """Whether the test with that node id is among them.

    >>> is_slow("tests/planning/test_find_lasts.py::test_anything[1-2]")
    True
    """
    path, *rest = name.partition("[")[0].split("::")
    return any("::".join([path, *rest[:depth]]) in SLOW for depth in range(len(rest) + 1))
