//! Component files that are up to no good. Owns how they are made; what each does stands in its row.

use wasmill_tests::Harness;
use wit_component::StringEncoding;

/// Before the name of an evil in the data of the guest `hostile`.
const STAMP: &[u8] = b"hostile-act:";
/// Bytes of the stamp and the name.
const STAMP_BYTES: usize = 48;

/// How a file comes about.
#[derive(Debug, Clone, Copy)]
pub enum File {
    /// The guest `hostile`, stamped with the name of what it does.
    Stamped(&'static str),
    /// `guest.wat`, with these words replaced and all others by nothing.
    Wat(&'static [(&'static str, &'static str)]),
    /// A component in WebAssembly's text form.
    Text(fn() -> String),
    /// Any bytes.
    Bytes(fn() -> Vec<u8>),
}

impl File {
    /// The file's bytes.
    pub fn bytes(self) -> Vec<u8> {
        match self {
            Self::Stamped(act) => stamped(act),
            Self::Wat(replaced) => embedded(&module(replaced)),
            Self::Text(text) => assembled(&text()),
            Self::Bytes(bytes) => bytes(),
        }
    }

    /// What it is made of.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Stamped(_) => "rust",
            Self::Wat(_) => "wat",
            Self::Text(_) => "text",
            Self::Bytes(_) => "bytes",
        }
    }
}

/// The guest, told to do `act`.
pub fn stamped(act: &str) -> Vec<u8> {
    let path = Harness::get().guest("wasmill_test_hostile");
    let mut bytes = std::fs::read(&path).expect("the guest can be read");
    let at: Vec<_> = bytes.windows(STAMP.len()).enumerate().filter(|(_, window)| *window == STAMP).collect();
    let [(at, _)] = at[..] else { panic!("{} stamps in {}", at.len(), path.display()) };
    let stamp = format!("{:1$}", act, STAMP_BYTES - STAMP.len());
    bytes[at + STAMP.len()..at + STAMP_BYTES].copy_from_slice(stamp.as_bytes());
    bytes
}

fn assembled(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap_or_else(|error| panic!("{error}"))
}

/// `guest.wat` as a module that does not say what it is.
pub fn module(replaced: &[(&str, &str)]) -> Vec<u8> {
    let text = include_str!("guest.wat");
    let mut text = text[text.find("(module").expect("a module")..].to_owned();
    for word in ["FIELDS", "MEMORY", "REALLOC", "DESCRIBE", "CONFIGURE", "PROCESS"] {
        let usual = if word == "MEMORY" { "2" } else { "" };
        let with = replaced.iter().find(|(replaced, _)| *replaced == word).map_or(usual, |(_, with)| with);
        text = text.replace(word, with);
    }
    for (old, new) in replaced.iter().filter(|(old, _)| old.starts_with('(')) {
        assert!(text.contains(old), "guest.wat has no `{old}`");
        text = text.replace(old, new);
    }
    assembled(&text)
}

/// A module with the section that says which world it is for.
pub fn embedded(module: &[u8]) -> Vec<u8> {
    let wit =
        std::fs::read_to_string(Harness::get().root().join("wit/operator.wit")).expect("the contract can be read");
    embedded_in(module, &wit)
}

/// The same for another contract.
pub fn embedded_in(module: &[u8], wit: &str) -> Vec<u8> {
    let mut module = module.to_vec();
    let mut resolve = wit_parser::Resolve::default();
    let package = resolve.push_str("operator.wit", wit).expect("the contract is WIT");
    let world = resolve.select_world(&[package], Some("operator")).expect("the contract has a world");
    wit_component::embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false)
        .expect("the section can be added");
    module
}

/// A good component.
pub fn good() -> Vec<u8> {
    let module = embedded(&module(&[]));
    let mut encoder = wit_component::ComponentEncoder::default();
    let encoder = encoder.validate(true).module(&module).expect("the good one is a module");
    encoder.encode().expect("the good one is a component")
}
