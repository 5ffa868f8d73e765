//! Owns the mistakes that others have made before: public reports of what went wrong in retry layers, each as a test.

#[cfg(feature = "tracing")]
#[path = "support/events.rs"]
mod events;
#[path = "support/h2.rs"]
mod h2;
mod support;
#[path = "support/wire.rs"]
mod wire;

#[path = "public_reports/bytes.rs"]
mod bytes;
#[path = "public_reports/case.rs"]
mod case;
#[path = "public_reports/catalogue.rs"]
mod catalogue;
#[path = "public_reports/hints.rs"]
mod hints;
#[path = "public_reports/marking.rs"]
mod marking;
#[path = "public_reports/neighbours.rs"]
mod neighbours;
#[path = "public_reports/safety.rs"]
mod safety;
#[path = "public_reports/timing.rs"]
mod timing;

use catalogue::{NUMBERS, REPORTS, Report};

#[test]
fn every_report_is_accounted_for_once() {
    let ids: Vec<_> = REPORTS.iter().map(Report::id).collect();
    let expected: Vec<_> = NUMBERS
        .iter()
        .flat_map(|(area, numbers)| {
            numbers
                .iter()
                .map(move |number| format!("{area}-{number:02}"))
        })
        .collect();
    assert_eq!(ids, expected);
    assert_eq!(ids.len(), 110);
    let (mut decided, mut not_applicable) = (0, 0);
    for report in REPORTS {
        match report {
            Report::Shown(_) => {}
            Report::Decided(_, reason) => {
                decided += 1;
                assert!(!reason.is_empty());
            }
            Report::NotApplicable(id, link, reason) => {
                not_applicable += 1;
                assert!(link.contains('#') && !reason.is_empty(), "{id}");
            }
        }
    }
    // Two are about logs.
    let unlogged = if cfg!(feature = "tracing") { 0 } else { 2 };
    assert_eq!((decided, not_applicable), (10 - unlogged / 2, 1 + unlogged));
}
