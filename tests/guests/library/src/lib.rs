//! The SDK's library driven by records: windows, sessions, joins, deduplication and a pattern, as far as `parts` names them.
//!
//! Every part takes every record: one whose name begins with an `a` as left or first, the others as right or second. What it emits
//! names the part, and so does the output `late`. A record that was handled goes to the output `seen`.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use wasmill_guest::aggregate::{Count, Sum};
use wasmill_guest::dedup::{Dedup, Seen};
use wasmill_guest::join::{Between, IntervalJoin, WindowJoin};
use wasmill_guest::pattern::{Pattern, Role, Skip, Within};
use wasmill_guest::prelude::*;
use wasmill_guest::window::{Gap, Sessions, Tumbling, Windows};

/// The operator.
#[derive(Operator)]
#[operator(key = String, output("out"), output("late"), output("seen"), timers)]
pub struct Library {
    windows: Windows<Sum<i64>>,
    sessions: Sessions<Count>,
    join: IntervalJoin<String, String>,
    window_join: WindowJoin<String, String>,
    dedup: Dedup,
    pattern: Pattern<String>,
    /// Which parts take part.
    #[config]
    parts: Vec<String>,
    /// Milliseconds of windows, sessions' gaps, joins, horizons and patterns.
    #[config(default = 10_000)]
    span: u64,
    /// `nothing`, `past-last` or `to-next`.
    #[config(default = "nothing".to_owned())]
    skip: String,
}

#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    name: String,
    n: Option<i64>,
}

/// What a part has found.
#[derive(Serialize)]
struct Told<'a> {
    key: &'a str,
    part: &'a str,
    start: i64,
    n: i64,
    name: &'a str,
}

impl Library {
    fn span(&self) -> Duration {
        Duration::from_millis(self.span)
    }

    fn windows(&self) -> Tumbling {
        Tumbling::of(self.span())
    }

    fn near(&self) -> Between {
        let span = i64::try_from(self.span).unwrap_or(i64::MAX);
        Between::millis(-span, span)
    }

    fn within(&self) -> Within {
        let skip = match self.skip.as_str() {
            "past-last" => Skip::PastLast,
            "to-next" => Skip::ToNext,
            _ => Skip::Nothing,
        };
        Within::of(self.span()).skip(skip)
    }

    /// Gives the record to one part. Whether it is late there.
    fn give(&mut self, part: &str, record: &Record<'_>, line: &Line, ctx: &mut Context<'_>) -> Result<bool> {
        let (windows, near, span, name) = (self.windows(), self.near(), self.span(), line.name.clone());
        let is_first = name.starts_with('a');
        let key: &str = record.key()?;
        let pair = |ctx: &mut Context<'_>, left: &String, right: &String| {
            ctx.emit(&Told { key, part: "join", start: 0, n: 0, name: &format!("{left}{right}") })
        };
        let late = match part {
            "windows" => self.windows.update(ctx, &windows, |sum| sum.add(line.n.unwrap_or(1)))?.is_late(),
            "sessions" => self.sessions.update(ctx, &Gap::of(span), Count::add)?.is_late(),
            "join" if is_first => self.join.left(ctx, near, name, pair)?.is_late(),
            "join" => self.join.right(ctx, near, name, pair)?.is_late(),
            "window-join" if is_first => self.window_join.left(ctx, &windows, name)?.is_late(),
            "window-join" => self.window_join.right(ctx, &windows, name)?.is_late(),
            "dedup" => match self.dedup.check(ctx, span)? {
                Seen::First => {
                    let start = record.time().as_millis();
                    ctx.emit(&Told { key, part: "dedup", start, n: 1, name: &line.name })?;
                    false
                }
                Seen::Duplicate => false,
                Seen::Late => true,
            },
            "pattern" => {
                let role = if is_first { Role::First } else { Role::Second };
                self.pattern.add(ctx, role, name)?.is_late()
            }
            _ => return Err(Error::fatal(format_args!("there is no part `{part}`"))),
        };
        Ok(late)
    }
}

impl Process for Library {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let line: Line = record.value()?;
        for part in self.parts.clone() {
            if self.give(&part, &record, &line, ctx)? {
                let (key, start) = (record.key()?, record.time().as_millis());
                ctx.to("late").emit(&Told { key, part: &part, start, n: 1, name: &line.name })?;
            }
        }
        ctx.to("seen").forward(&record)
    }
}

impl OnTimer for Library {
    fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
        let (windows, near, within, span) = (self.windows(), self.near(), self.within(), self.span());
        let key: &str = timer.key()?;
        for (window, sum) in self.windows.fire(ctx, &windows, &timer)? {
            ctx.emit(&Told { key, part: "windows", start: window.start.as_millis(), n: sum.get(), name: "" })?;
        }
        for (window, count) in self.sessions.fire(ctx, &Gap::of(span), &timer)? {
            let n = i64::try_from(count.get()).unwrap_or(i64::MAX);
            ctx.emit(&Told { key, part: "sessions", start: window.start.as_millis(), n, name: "" })?;
        }
        self.join.fire(ctx, near, &timer)?;
        self.window_join.fire(ctx, &windows, &timer, |ctx, window, left, right| {
            let (start, name) = (window.start.as_millis(), format!("{left}{right}"));
            ctx.emit(&Told { key, part: "window-join", start, n: 0, name: &name })
        })?;
        self.dedup.fire(ctx, span, &timer)?;
        self.pattern.fire(ctx, within, &timer, |ctx, (at, first), (_, second)| {
            ctx.emit(&Told { key, part: "pattern", start: at.as_millis(), n: 0, name: &format!("{first}{second}") })
        })
    }
}

operator!(Library);
