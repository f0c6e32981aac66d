//! The command line.
//!
//! Owns commands, options and their help. Does not own what they do.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use wasmill_core::id::CheckpointId;
use wasmill_runtime::config::Grant;
use wasmill_runtime::trial::BATCHES;

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    the job failed
  2    wrong usage, or a pipeline that cannot run
  3    refused for the safety of state: incompatible, damaged or in use
  4    an outside system (store, disk, endpoint) could not be reached
  130  stopped by a signal, after a final checkpoint where records were flowing

The first SIGTERM or SIGINT (Ctrl-C) takes a final checkpoint and stops; the second stops at once.";

/// Stateful stream operators as WebAssembly components.
#[derive(Debug, Parser)]
#[command(name = "wasmill", version, about, after_help = EXIT_CODES, disable_help_subcommand = true)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Logs, results and errors as JSON, an object a line
    #[arg(long, global = true)]
    pub json: bool,

    /// Which log lines to write: error, warn, info, debug, trace, or by module, such as `info,wasmill::guest=debug`
    /// [default: info; on a terminal without each checkpoint, which the line of progress shows]
    #[arg(long, global = true, value_name = "FILTER")]
    pub log: Option<String>,
}

/// A command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a pipeline until its input ends or it is stopped
    Run(Run),

    /// Check a pipeline without running it: components, connectors, checkpoint store; show the plan
    #[command(after_help = "Example:\n  wasmill check pipeline.toml")]
    Check {
        /// The pipeline file
        pipeline: PathBuf,
    },

    /// Try components on files of records, watermarks and clock steps, without a pipeline
    Test(Test),

    /// Show what a component declares: inputs, outputs, configuration, states, imports
    #[command(after_help = "Example:\n  wasmill inspect per_aircraft.wasm")]
    Inspect {
        /// The `.wasm` file: a component, or a core module that carries its component type
        component: PathBuf,
    },

    /// Print the WIT package that components are written against
    #[command(after_help = "Example:\n  mkdir wit && wasmill wit >wit/operator.wit")]
    Wit,

    /// Show how a running job is doing
    Status(Status),

    /// Look at a job's checkpoints, check and delete them
    #[command(subcommand)]
    Checkpoints(Checkpoints),

    /// Print a document that is made from the code
    #[command(hide = true)]
    Docs {
        /// Which
        document: Document,
    },
}

/// Options of `wasmill run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  wasmill run pipeline.toml                 goes on from the newest checkpoint, if there is one
  wasmill run pipeline.toml --fresh         begins with nothing
  wasmill run pipeline.toml --from 12       goes on from checkpoint 12
  wasmill run pipeline.toml --watch         restarts from the last checkpoint when a component changes")]
pub struct Run {
    /// The pipeline file
    pub pipeline: PathBuf,

    /// Begin with nothing, whatever checkpoints there are; they are kept until newer ones retire them
    #[arg(long, conflicts_with = "from")]
    pub fresh: bool,

    /// Go on from this checkpoint, by its number in `wasmill checkpoints list`
    #[arg(long, value_name = "CHECKPOINT", value_parser = checkpoint)]
    pub from: Option<CheckpointId>,

    /// When a component's file changes, take a checkpoint and go on from it with the new one
    #[arg(long)]
    pub watch: bool,
}

/// Options of `wasmill test`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A case is a few lines of JSON; docs/testing.md has them all:
  {\"case\": \"counts each key for itself\"}
  {\"record\": {\"n\": 1}, \"key\": \"a\", \"time\": 1000}
  {\"emit\": {\"key\": \"a\", \"count\": 1}}

Examples:
  wasmill test count.wasm                   the cases in count.test.jsonl and count.*.test.jsonl beside it
  wasmill test operators/                   all *.test.jsonl below, each with the component beside it
  wasmill test count.wasm --cases shared/   the cases of other files
  wasmill test count.wasm --bless           writes what came out as what is expected

Exit codes: 0 all cases passed, 1 a case failed, 2 wrong usage, a file that is wrong, or no case found")]
pub struct Test {
    /// A component, a test file, or a folder of them
    pub path: PathBuf,

    /// Take the cases from this test file, or all below this folder, for the component in PATH
    #[arg(long, value_name = "PATH")]
    pub cases: Option<PathBuf>,

    /// Only cases whose name or file has this text in it
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,

    /// The sizes of batches that a case is run with; their outputs must be the same
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_values_t = BATCHES,
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batches: Vec<u32>,

    /// Grant the components this, beside what the test files grant: clock (the case's), random
    #[arg(long, value_name = "GRANTS", value_delimiter = ',', value_parser = grant)]
    pub grants: Vec<Grant>,

    /// Load components that import more of WASI than they are granted; a call of that traps
    #[arg(long)]
    pub deny_wasi: bool,

    /// Write what came out into the test files, in the place of what they expected
    #[arg(long)]
    pub bless: bool,
}

fn grant(name: &str) -> Result<Grant, String> {
    let found = Grant::ALL.into_iter().find(|grant| grant.name() == name);
    found.ok_or_else(|| format!("there are {}", Grant::ALL.map(Grant::name).join(" and ")))
}

/// Options of `wasmill status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  wasmill status pipeline.toml
  wasmill status pipeline.toml --json
  wasmill status --admin 127.0.0.1:9464")]
pub struct Status {
    /// The pipeline file of the running job
    #[arg(required_unless_present = "admin")]
    pub pipeline: Option<PathBuf>,

    /// Where the job's admin endpoint listens; with a pipeline file, its token is used
    #[arg(long, value_name = "URL")]
    pub admin: Option<String>,
}

/// `wasmill checkpoints …`
#[derive(Debug, Subcommand)]
pub enum Checkpoints {
    /// List the checkpoints that are kept, the newest last
    #[command(after_help = "Example:\n  wasmill checkpoints list pipeline.toml")]
    List {
        /// The pipeline file
        pipeline: PathBuf,
    },

    /// Show what a checkpoint holds: operators, states, subtasks, files
    #[command(
        after_help = "Examples:\n  wasmill checkpoints show pipeline.toml\n  wasmill checkpoints show pipeline.toml 12 --json"
    )]
    Show {
        /// The pipeline file
        pipeline: PathBuf,

        /// The checkpoint, by its number in `wasmill checkpoints list` [default: the one that a restart restores]
        #[arg(value_parser = checkpoint)]
        checkpoint: Option<CheckpointId>,
    },

    /// Read everything that checkpoints name and compare it with its checksums; changes nothing
    #[command(after_help = "\
Examples:
  wasmill checkpoints verify pipeline.toml        every checkpoint that is kept
  wasmill checkpoints verify pipeline.toml 12     this one

Exit codes: 0 all is there, 2 no such checkpoint, 3 an object is missing or damaged, 4 the store could not be read")]
    Verify {
        /// The pipeline file
        pipeline: PathBuf,

        /// Only this checkpoint, by its number in `wasmill checkpoints list`
        #[arg(value_parser = checkpoint)]
        checkpoint: Option<CheckpointId>,
    },

    /// Delete a checkpoint and what no other one needs, also beside a job that runs
    #[command(after_help = "\
Examples:
  wasmill checkpoints delete pipeline.toml 12
  wasmill checkpoints delete pipeline.toml 14 --force     also the one that a restart would restore

Exit codes: 0 deleted, 2 no such checkpoint, 3 a restart restores it and --force is missing, 4 the store could not be reached")]
    Delete {
        /// The pipeline file
        pipeline: PathBuf,

        /// The checkpoint, by its number in `wasmill checkpoints list`
        #[arg(value_parser = checkpoint)]
        checkpoint: CheckpointId,

        /// Delete it although a restart would restore it: a restart then restores the newest one that is left, or begins with
        /// nothing. A job that runs is over
        #[arg(long)]
        force: bool,
    },
}

/// A document that is made from the code.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Document {
    /// docs/pipeline.md
    Pipeline,
    /// docs/metrics.md
    Metrics,
}

fn checkpoint(text: &str) -> Result<CheckpointId, String> {
    text.parse()
        .map(CheckpointId)
        .map_err(|_| "a checkpoint is named by its number; see `wasmill checkpoints list`".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_command_that_people_type_shows_an_example() {
        fn walk(command: &clap::Command, path: &str) {
            for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
                let path = format!("{path} {}", sub.get_name());
                if sub.has_subcommands() {
                    walk(sub, &path);
                } else {
                    let help = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
                    assert!(help.contains("Example") && help.contains(&path), "{path}: {help}");
                }
            }
        }
        walk(&Args::command(), "wasmill");
    }

    #[test]
    fn a_job_starts_either_fresh_or_from_a_checkpoint() {
        let parse = |line: &str| Args::try_parse_from(line.split_whitespace());
        assert!(parse("wasmill run p.toml --fresh --from 3").is_err());
        assert!(parse("wasmill run p.toml --from newest").is_err());
        assert!(parse("wasmill run p.toml --from 3 --watch --json").is_ok());
        assert!(parse("wasmill status").is_err());
        assert!(parse("wasmill status --admin 127.0.0.1:1").is_ok());
    }
}
