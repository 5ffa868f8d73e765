//! Every report by its number: the test that shows it, or the reason why there is none.

use self::Report::{Decided, NotApplicable, Shown};
use crate::{bytes, hints, neighbours, safety, timing};

pub(crate) enum Report {
    /// We do what the report asks for.
    Shown(Test),
    /// We do something else, for this reason.
    Decided(Test, &'static str),
    /// It can't happen here: the number, the report and the reason.
    NotApplicable(&'static str, &'static str, &'static str),
}

pub(crate) struct Test {
    name: &'static str,
    /// Proves that there is one of this name.
    _run: fn(),
}

macro_rules! test {
    ($($test:ident)::+) => {
        Test { name: stringify!($($test)::+), _run: $($test)::+ }
    };
}

impl Report {
    /// The test's name begins with it.
    pub(crate) fn id(&self) -> String {
        match self {
            Shown(test) | Decided(test, _) => {
                let name = test.name.rsplit(':').next().unwrap_or_default().trim();
                name[..5].to_uppercase().replace('_', "-")
            }
            NotApplicable(id, ..) => (*id).to_owned(),
        }
    }
}

/// The numbers in use, by area.
pub(crate) const NUMBERS: &[(&str, &[u8])] = &[
    (
        "RA",
        &[
            1, 2, 4, 5, 6, 7, 8, 10, 12, 13, 14, 15, 17, 18, 20, 22, 24, 25, 27, 29, 31, 32, 34,
            36, 38, 39,
        ],
    ),
    ("RL", &[2, 3, 4, 5, 8, 9, 11, 12]),
    ("DT", &[1, 3, 4]),
    ("DL", &[1, 3, 4, 6, 8, 9, 11, 13, 14]),
    ("BO", &[1, 3, 5]),
    ("JT", &[2, 3, 4, 6, 8, 9]),
    ("CF", &[2, 3, 4, 5]),
    ("BD", &[1, 3, 5, 7, 8]),
    ("CN", &[2, 3, 4]),
    ("EX", &[1, 3, 5]),
    ("ID", &[1, 3, 4, 5]),
    ("TR", &[1, 3, 4, 5, 6, 7, 9]),
    ("H2", &[1, 3]),
    ("RD", &[1, 3]),
    ("ST", &[1, 3]),
    ("CL", &[2, 3, 4]),
    ("NS", &[1, 3, 4]),
    ("BG", &[1, 3, 4, 5, 7]),
    ("CX", &[1]),
    ("AU", &[1, 3]),
    ("XT", &[1, 3]),
    ("OV", &[1]),
    ("LG", &[1, 3, 4, 5, 7]),
    ("PT", &[1]),
];

pub(crate) const REPORTS: &[Report] = &[
    Shown(test!(hints::ra_01_the_wait_that_the_server_names_is_waited)),
    Shown(test!(hints::ra_02_a_decimal_is_waited_to_the_millisecond)),
    Shown(test!(hints::ra_04_a_number_with_a_sign_is_no_hint)),
    Shown(test!(hints::ra_05_a_huge_number_ends_the_call_at_once)),
    Shown(test!(
        hints::ra_06_endless_digits_are_a_long_wait_and_an_impossible_year_is_no_hint
    )),
    Shown(test!(
        hints::ra_07_what_only_a_float_parser_reads_is_no_hint
    )),
    Shown(test!(hints::ra_08_a_date_is_waited_for)),
    Shown(test!(hints::ra_10_a_date_means_the_same_in_every_time_zone)),
    Shown(test!(hints::ra_12_what_is_no_number_is_read_as_a_date)),
    Shown(test!(
        hints::ra_13_an_unreadable_date_leaves_the_computed_wait
    )),
    Shown(test!(hints::ra_14_zero_means_now)),
    Shown(test!(
        hints::ra_15_a_server_that_always_says_now_meets_a_backoff_a_cap_and_a_budget
    )),
    Shown(test!(
        hints::ra_17_the_cap_of_the_backoff_does_not_shorten_a_hint
    )),
    Shown(test!(hints::ra_18_no_jitter_touches_a_hint)),
    Shown(test!(
        hints::ra_20_a_wait_beyond_the_limit_brings_the_response_back_at_once
    )),
    Shown(test!(
        hints::ra_22_a_hint_goes_before_the_configured_wait_unless_hints_are_off
    )),
    Decided(
        test!(hints::ra_24_a_unix_time_is_a_moment_and_not_a_wait),
        "servers do send a Unix time, and nobody asks for a wait of decades",
    ),
    Shown(test!(hints::ra_25_a_limit_of_the_request_bounds_the_wait)),
    Shown(test!(
        hints::ra_27_only_ascii_digits_are_digits_and_blanks_around_them_are_none
    )),
    Decided(
        test!(hints::ra_29_of_several_values_the_longest_is_waited),
        "of several values only the longest is early for nobody",
    ),
    Decided(
        test!(hints::ra_31_a_status_made_an_error_is_final_below_and_retried_above),
        "an error made of a status has lost the hint: it is to be made above the retries",
    ),
    Shown(test!(hints::ra_32_the_unit_is_the_second)),
    Shown(test!(
        hints::ra_34_a_budget_says_yes_or_no_and_never_how_long
    )),
    Shown(test!(
        hints::ra_36_a_redirect_is_followed_below_without_a_wait_or_a_retry
    )),
    Shown(test!(
        hints::ra_38_a_decimal_without_a_fraction_is_whole_seconds
    )),
    Shown(test!(
        hints::ra_39_a_wait_of_days_brings_the_response_back_at_once
    )),
    Shown(test!(
        hints::rl_02_every_header_has_the_unit_that_it_was_given
    )),
    Shown(test!(
        hints::rl_03_a_403_is_final_unless_a_classifier_says_otherwise
    )),
    Shown(test!(
        hints::rl_04_a_classifier_can_read_the_wait_from_any_header
    )),
    Shown(test!(hints::rl_05_retry_after_goes_before_a_reset)),
    Shown(test!(
        hints::rl_08_a_429_without_a_hint_can_be_final_or_slower
    )),
    Shown(test!(
        hints::rl_09_a_classifier_can_end_a_call_by_what_a_middleware_read
    )),
    Shown(test!(
        hints::rl_11_the_field_of_the_drafts_is_read_on_request
    )),
    Shown(test!(
        hints::rl_12_the_servers_word_on_whether_to_retry_is_heeded_on_request
    )),
    Shown(test!(hints::dt_01_a_date_is_counted_from_the_servers_own)),
    Shown(test!(
        hints::dt_03_all_three_forms_of_a_date_are_read_and_nothing_beside_them
    )),
    Shown(test!(hints::dt_04_a_date_that_is_not_gmt_is_no_date)),
    Shown(test!(timing::dl_01_a_wait_that_ends_too_late_is_not_begun)),
    Shown(test!(timing::dl_03_a_hint_is_held_to_the_same_limit)),
    Shown(test!(timing::dl_04_attempts_and_waits_count_together)),
    Decided(
        test!(timing::dl_06_the_first_attempt_counts_and_no_attempt_is_cut),
        "a limit interrupts no attempt: reqwest's timeouts do, or one around the call",
    ),
    Shown(test!(
        timing::dl_08_a_call_stops_before_the_wait_that_does_not_fit_and_says_so
    )),
    Shown(test!(timing::dl_09_the_clock_starts_with_each_call)),
    Shown(test!(timing::dl_11_short_waits_never_fail_a_call)),
    Shown(test!(
        timing::dl_13_an_attempts_timeout_and_the_calls_limit_go_together
    )),
    Shown(test!(
        timing::dl_14_the_wait_that_is_checked_is_the_wait_that_is_slept
    )),
    Shown(test!(
        timing::bo_01_growth_stays_at_the_cap_for_any_number_of_attempts
    )),
    Shown(test!(
        timing::bo_03_the_memory_of_decorrelated_jitter_is_capped_as_well
    )),
    Shown(test!(timing::bo_05_no_base_and_no_cap_mean_no_wait)),
    Shown(test!(timing::jt_02_no_jitter_adds_an_attempt)),
    Shown(test!(timing::jt_03_a_draw_of_zero_is_a_retry_at_once)),
    Decided(
        test!(timing::jt_04_equal_jitter_waits_at_least_half_and_full_jitter_may_not),
        "there is no floor beside the jitter: equal jitter is the one that has it",
    ),
    Shown(test!(timing::jt_06_waits_stay_spread_at_the_cap)),
    Shown(test!(timing::jt_08_the_wait_is_the_base_doubled_each_time)),
    Shown(test!(timing::jt_09_clients_made_together_wait_apart)),
    Shown(test!(
        timing::cf_02_attempts_count_the_first_one_and_zero_is_one
    )),
    Shown(test!(
        timing::cf_03_there_is_no_other_limit_than_the_policys
    )),
    Shown(test!(
        timing::cf_04_every_setting_composes_into_a_policy_that_the_middleware_takes
    )),
    Decided(
        test!(timing::cf_05_no_setting_fails_neither_when_it_is_made_nor_when_it_is_used),
        "what is out of range is clamped, so that no setting fails, early or late",
    ),
    Shown(test!(
        bytes::bd_01_a_stream_is_sent_once_as_if_there_were_no_retries
    )),
    Shown(test!(bytes::bd_03_every_attempt_carries_the_same_bytes)),
    Shown(test!(
        bytes::bd_05_a_body_that_is_made_anew_arrives_whole_each_time
    )),
    Shown(test!(
        bytes::bd_07_rejected_answers_leave_no_connections_behind
    )),
    Shown(test!(
        bytes::bd_08_a_retry_that_is_redirected_brings_the_body_along
    )),
    Shown(test!(bytes::cn_02_one_connection_is_enough)),
    Shown(test!(
        bytes::cn_03_the_answer_to_a_head_has_no_body_to_wait_for
    )),
    Shown(test!(
        bytes::cn_04_an_answer_without_an_end_does_not_hold_the_retry_up
    )),
    Shown(test!(
        bytes::ex_01_the_last_answer_comes_back_with_its_headers_and_its_body_unread
    )),
    Shown(test!(
        safety::ex_03_the_last_error_comes_back_as_it_was_made
    )),
    Shown(test!(
        bytes::ex_05_a_status_is_no_error_and_exhaustion_makes_none_of_it
    )),
    Shown(test!(
        safety::id_01_a_post_is_not_repeated_after_a_failure_that_may_have_had_an_effect
    )),
    Shown(test!(
        safety::id_03_a_post_is_sent_again_where_the_server_turned_it_away
    )),
    Shown(test!(safety::id_04_a_post_that_never_left_is_sent_again)),
    Shown(test!(
        safety::id_05_all_attempts_carry_the_key_of_their_call
    )),
    Shown(test!(
        safety::tr_01_a_connection_that_ends_before_its_answer_is_retried_for_a_get
    )),
    Shown(test!(
        safety::tr_03_what_queued_for_a_connection_that_closes_is_sent_on_another
    )),
    Shown(test!(
        safety::tr_04_an_error_is_recognised_however_deep_it_lies
    )),
    Shown(test!(
        safety::tr_05_a_body_that_breaks_off_is_the_readers_error_and_no_retry
    )),
    Decided(
        test!(safety::tr_06_a_classifier_can_find_fault_with_a_200),
        "a classifier sees no bodies: a middleware below reads them and tells it",
    ),
    Shown(test!(
        safety::tr_07_a_scheme_that_the_client_can_not_speak_is_final
    )),
    Shown(test!(
        safety::tr_09_a_new_connection_that_closes_is_retried_within_the_rules_only
    )),
    Shown(test!(
        safety::h2_01_a_stream_that_was_refused_is_sent_again_whatever_its_method
    )),
    Shown(test!(
        safety::h2_03_a_connection_that_timed_out_is_not_used_again
    )),
    Shown(test!(
        safety::rd_01_a_retry_starts_again_at_the_first_url_with_the_first_method
    )),
    Shown(test!(
        safety::rd_03_a_429_behind_a_redirect_says_nothing_about_the_post
    )),
    Shown(test!(safety::st_01_a_5xx_that_will_not_mend_is_final)),
    Decided(
        test!(safety::st_03_429_is_retried_and_408_and_425_where_somebody_says_so),
        "servers mean too many things by 408 and 425: a classifier can say which",
    ),
    Shown(test!(
        safety::cl_02_each_status_says_for_itself_whether_a_post_may_be_repeated
    )),
    Shown(test!(
        timing::cl_03_a_classifiers_wait_leaves_every_limit_in_force
    )),
    Shown(test!(
        safety::cl_04_the_hint_is_waited_whoever_asked_for_the_retry
    )),
    Shown(test!(
        neighbours::ns_01_an_outer_loop_can_see_what_was_tried
    )),
    Shown(test!(
        neighbours::ns_03_reqwests_own_retries_multiply_ours_unless_they_are_off
    )),
    Shown(test!(
        neighbours::ns_04_what_chooses_a_host_below_chooses_for_each_attempt
    )),
    Shown(test!(neighbours::bg_01_a_share_grants_what_it_says)),
    Shown(test!(
        neighbours::bg_03_a_share_is_of_the_calls_that_were_begun
    )),
    Shown(test!(
        neighbours::bg_04_calls_that_succeed_fill_the_budget_again
    )),
    Shown(test!(
        neighbours::bg_05_a_client_that_sets_nothing_has_a_budget
    )),
    Shown(test!(neighbours::bg_07_each_host_has_a_budget_of_its_own)),
    Shown(test!(
        neighbours::cx_01_a_call_that_is_dropped_in_its_wait_is_over
    )),
    Shown(test!(
        neighbours::au_01_each_attempt_is_signed_at_its_own_time
    )),
    Shown(test!(
        neighbours::au_03_a_middleware_below_renews_what_each_attempt_carries
    )),
    Shown(test!(
        neighbours::xt_01_each_attempt_starts_afresh_and_the_last_extensions_come_back
    )),
    Shown(test!(
        neighbours::xt_03_a_panic_in_what_a_user_wrote_ends_its_own_call_only
    )),
    Shown(test!(
        neighbours::ov_01_one_request_can_have_rules_of_its_own
    )),
    #[cfg(feature = "tracing")]
    Shown(test!(
        neighbours::logs::lg_01_nothing_that_is_told_holds_a_secret_of_the_url
    )),
    #[cfg(not(feature = "tracing"))]
    NotApplicable(
        "LG-01",
        "xberg-io/liter-llm#205",
        "nothing is logged without the feature",
    ),
    #[cfg(feature = "tracing")]
    Decided(
        test!(neighbours::logs::lg_03_a_retry_is_told_quietly_and_giving_up_is_a_warning),
        "the levels are fixed: what is shown of them is the subscriber's choice",
    ),
    #[cfg(not(feature = "tracing"))]
    NotApplicable(
        "LG-03",
        "wojtekmach/req#162",
        "nothing is logged without the feature",
    ),
    Shown(test!(
        neighbours::lg_04_a_middleware_below_sees_each_attempt_and_its_number
    )),
    Shown(test!(
        neighbours::lg_05_retries_are_numbered_from_one_and_attempts_are_one_more
    )),
    Decided(
        test!(neighbours::lg_07_no_header_tells_the_attempt_unless_somebody_adds_one),
        "there is no option for the header: a middleware below adds the one it wants",
    ),
    NotApplicable(
        "PT-01",
        "TrueLayer/reqwest-middleware#239",
        "a browser has no clock of the standard library: wasm is not supported",
    ),
];
