//! A recorder that keeps what `metrics` is told, to be printed. A program would install an exporter instead.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SetRecorderError, SharedString, Unit,
};

/// One line for each series: how often, and for a histogram how much in sum.
#[derive(Clone, Default)]
pub(crate) struct Totals {
    series: Arc<Mutex<BTreeMap<String, (u64, f64)>>>,
}

pub(crate) fn install() -> Result<Totals, SetRecorderError<Totals>> {
    let totals = Totals::default();
    metrics::set_global_recorder(totals.clone())?;
    Ok(totals)
}

impl fmt::Display for Totals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let series = self.series.lock().unwrap();
        for (name, (count, sum)) in series.iter() {
            write!(formatter, "{name} {count}")?;
            if *sum > 0.0 {
                write!(formatter, " values, {sum:.3} in sum")?;
            }
            writeln!(formatter)?;
        }
        Ok(())
    }
}

struct Series {
    name: String,
    totals: Totals,
}

impl Series {
    fn add(&self, count: u64, value: f64) {
        let mut series = self.totals.series.lock().unwrap();
        let total = series.entry(self.name.clone()).or_default();
        total.0 += count;
        total.1 += value;
    }
}

impl CounterFn for Series {
    fn increment(&self, value: u64) {
        self.add(value, 0.0);
    }

    fn absolute(&self, _value: u64) {}
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        self.add(1, value);
    }
}

impl Totals {
    fn series(&self, key: &Key) -> Arc<Series> {
        let labels: Vec<String> = key
            .labels()
            .map(|label| format!("{}=\"{}\"", label.key(), label.value()))
            .collect();
        Arc::new(Series {
            name: format!("{}{{{}}}", key.name(), labels.join(", ")),
            totals: self.clone(),
        })
    }
}

impl Recorder for Totals {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.series(key))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.series(key))
    }
}
