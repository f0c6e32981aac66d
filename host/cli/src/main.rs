//! `wasmill`: what people type, and what they are told.
//!
//! Owns the command line, the terminal and exit codes. Does not own anything that a job does.

mod args;
mod check;
mod checkpoints;
mod exit;
mod inspect;
mod logging;
mod progress;
mod run;
mod show;
mod signal;
mod status;
mod test;
mod watch;

use std::process::ExitCode;

use clap::Parser;
use wasmill_core::fault::Fault;

use crate::args::{Args, Command, Document};
use crate::exit::Exit;
use crate::logging::Screen;

fn main() -> ExitCode {
    let args = Args::parse();
    let screen = match Screen::install(args.log.as_deref(), args.json) {
        Ok(screen) => screen,
        Err(fault) => {
            exit::tell(&fault.message, &fault, args.json);
            return Exit::of(&fault).into();
        }
    };
    match execute(&args, &screen) {
        Ok(exit) => exit.into(),
        Err(fault) => {
            exit::tell(&screen.mask(&fault.message), &fault, args.json);
            Exit::of(&fault).into()
        }
    }
}

fn execute(args: &Args, screen: &Screen) -> Result<Exit, Fault> {
    let json = args.json;
    match &args.command {
        Command::Run(options) => run::run(options, screen),
        Command::Check { pipeline } => check::check(pipeline, json, screen),
        Command::Test(options) => test::test(options, json, screen),
        Command::Inspect { component } => inspect::inspect(component, json),
        Command::Wit => Ok(show::print(wasmill_runtime::guest::WIT)),
        Command::Status(options) => status::status(options, json, screen),
        Command::Checkpoints(command) => checkpoints::execute(command, json, screen),
        Command::Docs { document: Document::Pipeline } => Ok(show::print(&wasmill_runtime::config::docs::markdown())),
        Command::Docs { document: Document::Metrics } => Ok(show::print(&wasmill_runtime::telemetry::docs::markdown())),
    }
}
