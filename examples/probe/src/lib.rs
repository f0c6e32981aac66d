//! Does what a record's text says: panics, loops, eats memory, refuses, fails, sets timers. Any other text is counted for its key.
//!
//! The host's tests run it to see what becomes of the records around such a one, and so can anyone who wants to try a
//! pipeline's failure policies. The text is the whole value: as CBOR, as the first field of a record, or raw.

use serde::{Deserialize, Serialize};
use wasmill_guest::prelude::*;

/// The operator. It counts in a state that rides along and in one that is fetched.
#[derive(Operator)]
#[operator(key = String, input("in", headers), output("out", headers), timers(list))]
pub struct Probe {
    eager: Value<u64>,
    #[state(lazy)]
    lazy: Value<u64>,
}

#[derive(Deserialize)]
struct Line<'a> {
    text: &'a str,
}

#[derive(Serialize)]
struct Counts<'a> {
    key: Option<&'a str>,
    text: &'a str,
    eager: u64,
    lazy: u64,
}

/// The headers with which a record came.
#[derive(Serialize)]
struct Heard<'a> {
    key: Option<&'a str>,
    headers: Vec<(String, String)>,
}

/// The times of a key's timers, and of the one that fired where they are told by it.
#[derive(Serialize)]
struct Timers<'a> {
    key: &'a str,
    fired: Option<i64>,
    timers: Vec<i64>,
}

fn tell(ctx: &mut Context<'_>, key: &str, fired: Option<i64>) -> Result {
    let timers = ctx.timers()?.into_iter().map(|timer| timer.time.as_millis()).collect();
    ctx.emit(&Timers { key, fired, timers })
}

impl Process for Probe {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let text = text(&record)?;
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let headers: Vec<_> = record.headers().map(|(name, value)| (lossy(name), lossy(value))).collect();
        if headers.iter().any(|(name, _)| name == "panic") {
            panic!("told to panic by a header");
        }
        // Counted before anything goes wrong, so that there is something to undo.
        let eager = *self.eager.update(ctx, |count| *count += 1)?;
        let lazy = *self.lazy.update(ctx, |count| *count += 1)?;
        let key = record.key_bytes().is_some().then(|| record.key()).transpose()?;
        if !headers.is_empty() {
            return ctx.emit(&Heard { key, headers });
        }
        if let Some((name, value)) = text.strip_prefix("header ").and_then(|header| header.split_once('=')) {
            return ctx.to("out").header(name, value.as_bytes()).emit(&Counts { key, text, eager, lazy });
        }
        ctx.emit(&Counts { key, text, eager, lazy })?;
        match text.split_once(' ').unwrap_or((text, "")) {
            ("panic", _) => panic!("told to panic"),
            ("spin", _) => spin(),
            ("bomb", _) => bomb(),
            ("reject", _) => Err(Error::reject("told to reject")),
            ("fatal", _) => Err(Error::fatal("told to fail")),
            ("retry", _) => Err(Error::retryable("told to fail for now")),
            ("timer", time) => ctx.set_timer(Timestamp::from_millis(time.parse()?), 0),
            ("timers", _) => tell(ctx, key.unwrap_or_default(), None),
            ("log", message) => {
                log::info!("{message}");
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl OnTimer for Probe {
    fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
        tell(ctx, timer.key()?, Some(timer.time().as_millis()))
    }
}

fn text<'a>(record: &Record<'a>) -> Result<&'a str> {
    let raw = || Ok(std::str::from_utf8(record.value_bytes().unwrap_or_default())?);
    record.value().or_else(|_| record.value::<Line<'a>>().map(|line| line.text)).or_else(|_: Error| raw())
}

fn spin() -> ! {
    let mut turns = 0u64;
    loop {
        turns = std::hint::black_box(turns.wrapping_add(1));
    }
}

fn bomb() -> ! {
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    loop {
        blocks.push(std::hint::black_box(vec![1; 1 << 20]));
    }
}

operator!(Probe);

#[cfg(test)]
mod tests {
    use wasmill_guest::diagnostics::Level;
    use wasmill_guest::testing::{Harness, Input};
    use wasmill_guest::types::FaultKind;

    use super::*;

    fn probe() -> Harness<Probe> {
        Harness::new("{}").unwrap()
    }

    #[test]
    fn a_text_is_counted_however_it_comes() {
        let mut test = probe();
        let texts = [Input::new("a"), Input::new(&("b",)), Input::bytes(b"some text"), Input::new("log it")];
        let emits = test.process(texts.map(|input| input.key("k"))).unwrap();
        assert_eq!(emits.len(), 4);
        assert_eq!(test.state::<u64>("eager", "k").unwrap(), Some(4));
        assert_eq!(test.state::<u64>("lazy", "k").unwrap(), Some(4));
        assert_eq!(test.logs(), [(Level::Info, "it".to_owned())]);
    }

    #[test]
    fn what_it_refuses_leaves_no_trace() {
        let mut test = probe();
        let texts = ["a", "reject", "a"].map(|text| Input::new(text).key("k"));
        assert_eq!(test.process(texts).unwrap().len(), 2);
        assert_eq!(test.state::<u64>("lazy", "k").unwrap(), Some(2));
        for (text, kind) in [("fatal", FaultKind::Fatal), ("retry", FaultKind::Retryable)] {
            assert_eq!(test.process([Input::new(text).key("k")]).unwrap_err().kind, kind);
        }
        assert_eq!(test.state::<u64>("eager", "k").unwrap(), Some(2));
    }

    #[test]
    #[should_panic(expected = "told to panic")]
    fn it_panics_when_told_to() {
        let _ = probe().process([Input::new("panic").key("k")]);
    }
}
