//! Events while something runs.

use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::{Level, Metadata, Subscriber, span};

/// An event: its level and target, and its fields in their order, the message among them.
#[derive(Clone, Debug)]
pub struct Event {
    pub level: Level,
    pub target: &'static str,
    fields: Vec<(&'static str, String)>,
}

impl Event {
    pub fn get(&self, field: &str) -> &str {
        self.fields.iter().find(|(name, _)| *name == field).map_or("", |(_, value)| value)
    }

    pub fn text(&self) -> String {
        self.fields.iter().map(|(name, value)| format!("{name}={value} ")).collect()
    }
}

impl Visit for Event {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.fields.push((field.name(), format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.push((field.name(), value.to_owned()));
    }
}

struct Collector {
    least: Level,
    heard: Arc<Mutex<Vec<Event>>>,
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.least
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let metadata = event.metadata();
        let mut heard = Event { level: *metadata.level(), target: metadata.target(), fields: Vec::new() };
        event.record(&mut heard);
        self.heard.lock().unwrap().push(heard);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Runs something and collects its events on this thread, down to a level.
pub fn heard<T>(least: Level, run: impl FnOnce() -> T) -> (T, Vec<Event>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let result = tracing::subscriber::with_default(Collector { least, heard: heard.clone() }, run);
    let heard = heard.lock().unwrap().clone();
    (result, heard)
}

/// Runs something and collects its warnings.
pub fn warnings<T>(run: impl FnOnce() -> T) -> (T, Vec<String>) {
    let (result, heard) = heard(Level::WARN, run);
    (result, heard.iter().map(Event::text).collect())
}
