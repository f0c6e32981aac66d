//! From a file to a component that can be instantiated.
//!
//! Owns every check before the first record: that the file is what it says, imports nothing that was not granted, exports what
//! the contract asks for, and describes itself. Does not own instances.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use wasmill_core::contract::OperatorContract;
use wasmill_core::fault::{Fault, FaultKind};
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component as Compiled, Linker};

use super::bindings::OperatorPre;
use super::compile_cache::hex;
use super::contract::{self, VERSION};
use super::diagnostics::Channel;
use super::engine::Engine;
use super::grants::{Access, Grants, advice};
use super::instance::{Data, Instance};
use super::parse::{Outline, outline};
use super::trap::shortened;
use super::{CallError, Guest, GuestFactory, InstanceOptions, SharedState, describe, imports, wasi};
use crate::config::Grant;
use crate::spawn;

/// Largest file that is taken for a component, in bytes. The largest seen (CPython) has 18 MB.
pub const MAX_FILE_BYTES: u64 = 256 << 20;

/// Why a file cannot be an operator. Each names the cause and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// wasmtime does not run here.
    #[error("the WebAssembly engine cannot start: {0}")]
    Engine(String),
    /// The file cannot be read.
    #[error("cannot read it: {0}")]
    Read(String),
    /// The file is larger than [`MAX_FILE_BYTES`].
    #[error("it has {size} bytes, and {MAX_FILE_BYTES} are the most")]
    TooLarge {
        /// Its size.
        size: u64,
    },
    /// An empty file.
    #[error("it is empty: was the build interrupted?")]
    Empty,
    /// Bytes that are no WebAssembly.
    #[error("it is not WebAssembly{}", if *is_text { " but looks like its text form: assemble it first (`wasm-tools parse`)" } else { ": name the .wasm file that the build made" })]
    NotWasm {
        /// It looks like WebAssembly's text form.
        is_text: bool,
    },
    /// The file ends too early.
    #[error("it is cut off: it ends at byte {offset} of {size}, in the middle of a part; copy or build it again")]
    CutOff {
        /// Where the end was met.
        offset: u64,
        /// The file's size.
        size: usize,
    },
    /// The file contradicts itself.
    #[error("it is damaged at byte {offset}: {cause}; copy or build it again")]
    Damaged {
        /// Where.
        offset: u64,
        /// How.
        cause: String,
    },
    /// The engine refuses the code.
    #[error("it is not valid: {0}")]
    Invalid(String),
    /// A core module that does not say what it is.
    #[error(
        "it is a core module without a component-type section, so it says nothing of wasmill: build it with a guest SDK, or make a component of it (`wasm-tools component embed` and `new`)"
    )]
    NoComponentType,
    /// A core module whose component-type section names interfaces of more packages than the contract's.
    #[error(
        "its component-type section names interfaces of {}, and only the contract's package may be named, in one version: build it again",
        listed(packages)
    )]
    Packages {
        /// The packages, with version.
        packages: Vec<String>,
    },
    /// A core module that cannot be made into a component.
    #[error("the core module cannot be made into a component: {0}")]
    Componentise(String),
    /// A component of something else.
    #[error("it does not speak wasmill's contract: it does not import `{}/types`", contract::PACKAGE)]
    NotAnOperator,
    /// Built for another minor version of the contract.
    #[error(
        "it was built for version {built_for} of {}, and this wasmill speaks {}: use the SDK of that version, or another wasmill",
        contract::PACKAGE,
        shown(VERSION)
    )]
    ContractVersion {
        /// The version it was built for.
        built_for: String,
    },
    /// Imports beyond the contract.
    #[error(
        "it imports {}, which is not granted: an operator has no clock, files, network or randomness{}",
        listed(imports),
        advice(imports)
    )]
    NotGranted {
        /// The imports.
        imports: Vec<String>,
    },
    /// A core module with imports beyond the contract.
    #[error(
        "it is a core module that imports {}, which is not granted: a core module has the contract alone; build for wasm32-unknown-unknown, or make a component of it (`wasm-tools component new`), whose imports of WASI 0.2 can be granted or denied",
        listed(imports)
    )]
    CoreNotGranted {
        /// The imports.
        imports: Vec<String>,
    },
    /// Functions of the contract are missing.
    #[error(
        "it does not export {}: build it with a guest SDK, which fills in what an operator does not need",
        listed(exports)
    )]
    MissingExports {
        /// The functions.
        exports: Vec<String>,
    },
    /// An import or export has another type than the contract's.
    #[error("it does not fit {} {}: {cause}", contract::PACKAGE, shown(VERSION))]
    Mismatch {
        /// The name and the difference.
        cause: String,
    },
    /// `describe` failed.
    #[error("it cannot describe itself: {0}")]
    Describe(Box<CallError>),
    /// What `describe` returned breaks a rule.
    #[error("it describes itself wrongly: {0}")]
    Contract(#[from] contract::Error),
    /// Which file it was.
    #[error("component {file}: {cause}")]
    File {
        /// The file.
        file: String,
        /// What is wrong with it.
        cause: Box<Error>,
    },
}

impl Error {
    /// What is wrong, without the file's name.
    #[must_use]
    pub fn cause(&self) -> &Self {
        match self {
            Self::File { cause, .. } => cause.cause(),
            other => other,
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let kind = match error.cause() {
            Error::Engine(_) => FaultKind::External,
            _ => FaultKind::User,
        };
        Self::new(kind, error)
    }
}

fn listed(names: &[String]) -> String {
    const SHOWN: usize = 5;
    const NAME_BYTES: usize = 100;
    let shown = |name: &String| format!("`{}`", shortened(name, NAME_BYTES));
    let mut list = names.iter().take(SHOWN).map(shown).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        list.push_str(&format!(" and {} more", names.len() - SHOWN));
    }
    list
}

fn shown((major, minor, patch): (u64, u64, u64)) -> String {
    format!("{major}.{minor}.{patch}")
}

/// An interface that a component imports, and the functions that it uses of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// The interface's full name.
    pub interface: String,
    /// The functions.
    pub functions: Vec<String>,
    /// On what grounds it is there.
    pub access: Access,
}

/// A loaded component: checked, compiled and described. A cheap handle.
#[derive(Clone)]
pub struct Component {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    digest: String,
    bytes: Bytes,
    was_core_module: bool,
    wit_version: String,
    imports: Vec<Import>,
    exports: Vec<String>,
    contract: Arc<OperatorContract>,
    pre: OperatorPre<Data>,
    channel: Arc<Channel>,
    engine: Engine,
}

impl Engine {
    /// Loads the component or core module in a file, which may import the contract alone.
    ///
    /// # Errors
    /// See [`Error`]; the message begins with the file's name.
    pub fn load(&self, path: &Path) -> Result<Component, Error> {
        self.load_granted(path, &Grants::default())
    }

    /// Loads the component or core module in a file. A component may import the contract and what `grants` allow; a core
    /// module the contract alone.
    ///
    /// # Errors
    /// See [`Error`]; the message begins with the file's name.
    pub fn load_granted(&self, path: &Path, grants: &Grants) -> Result<Component, Error> {
        let file = path.display().to_string();
        read(path)
            .and_then(|bytes| self.checked(bytes, grants))
            .map_err(|cause| Error::File { file, cause: Box::new(cause) })
    }

    /// Loads a component or core module from bytes; `name` stands for the file in messages.
    ///
    /// # Errors
    /// See [`Error`]; the message begins with `name`.
    pub fn load_bytes(&self, name: &str, bytes: &[u8]) -> Result<Component, Error> {
        self.load_bytes_granted(name, bytes, &Grants::default())
    }

    /// Loads a component or core module from bytes, as [`Engine::load_granted`] does from a file.
    ///
    /// # Errors
    /// See [`Error`]; the message begins with `name`.
    pub fn load_bytes_granted(&self, name: &str, bytes: &[u8], grants: &Grants) -> Result<Component, Error> {
        self.checked(Bytes::copy_from_slice(bytes), grants)
            .map_err(|cause| Error::File { file: name.to_owned(), cause: Box::new(cause) })
    }

    fn checked(&self, bytes: Bytes, grants: &Grants) -> Result<Component, Error> {
        let file = outline(&bytes)?;
        let digest: [u8; 32] = Sha256::digest(&bytes).into();
        let component = if file.is_core { componentise(&file, &bytes)? } else { bytes.clone() };
        let parts = if file.is_core { outline(&component)? } else { file };
        parts.check_imports(grants)?;
        let wit_version = parts.contract_version().ok_or(Error::NotAnOperator)?;
        parts.check_exports()?;
        let compiled = self.compiled(&digest, &component)?;
        let pre = linked(self, &compiled, grants)?;
        let channel = Arc::new(Channel::new(self.clone(), hex(&digest)));
        let described = describe::describe(self, &pre, &channel)?;
        Ok(Component {
            inner: Arc::new(Inner {
                name: described.name.clone(),
                digest: hex(&digest),
                was_core_module: component != bytes,
                bytes,
                wit_version,
                imports: imported(&compiled, grants),
                exports: parts.exports,
                contract: Arc::new(described),
                pre,
                channel,
                engine: self.clone(),
            }),
        })
    }

    fn compiled(&self, digest: &[u8; 32], component: &[u8]) -> Result<Compiled, Error> {
        if let Some(compiled) = self.cache().and_then(|cache| cache.load(self.wasmtime(), digest)) {
            return Ok(compiled);
        }
        let invalid = |cause: String| Error::Invalid(shortened(&cause, 1000));
        let compiled = spawn::guarded("wasmtime's compiler", || Compiled::from_binary(self.wasmtime(), component))
            .map_err(|fault| invalid(fault.message))?
            .map_err(|error| invalid(format!("{error:#}")))?;
        if let Some(cache) = self.cache() {
            cache.store(digest, &compiled);
        }
        Ok(compiled)
    }
}

fn read(path: &Path) -> Result<Bytes, Error> {
    let failed = |error: std::io::Error| Error::Read(error.to_string());
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(Error::Read("it is not a file".to_owned()));
    }
    let size = metadata.len();
    if size > MAX_FILE_BYTES {
        return Err(Error::TooLarge { size });
    }
    std::fs::read(path).map(Bytes::from).map_err(failed)
}

/// Makes a component of a core module that carries the component-type section.
fn componentise(module: &Outline, bytes: &[u8]) -> Result<Bytes, Error> {
    if !module.has_component_type {
        return Err(Error::NoComponentType);
    }
    module.check_imports(&Grants::default())?;
    if let [_, _, ..] = &module.packages[..] {
        return Err(Error::Packages { packages: module.packages.clone() });
    }
    let failed = |cause: String| Error::Componentise(shortened(&cause, 1000));
    let encode =
        || wit_component::ComponentEncoder::default().validate(true).module(bytes).and_then(|encoder| encoder.encode());
    let encoded = spawn::guarded("wit-component", encode).map_err(|fault| failed(fault.message))?;
    encoded.map(Bytes::from).map_err(|error| failed(format!("{error:#}")))
}

/// Checks the types of imports and exports against the contract's.
fn linked(engine: &Engine, compiled: &Compiled, grants: &Grants) -> Result<OperatorPre<Data>, Error> {
    let mismatch = |error: wasmtime::Error| Error::Mismatch { cause: shortened(&format!("{error:#}"), 1000) };
    let mut linker = Linker::new(engine.wasmtime());
    imports::add_to(&mut linker).map_err(|error| Error::Engine(format!("{error:#}")))?;
    wasi::add_to(&mut linker, compiled, grants).map_err(mismatch)?;
    linker.instantiate_pre(compiled).and_then(OperatorPre::new).map_err(mismatch)
}

fn imported(compiled: &Compiled, grants: &Grants) -> Vec<Import> {
    let engine = compiled.engine();
    let component = compiled.component_type();
    let import = |(name, item): (&str, wasmtime::component::types::ComponentExtern<'_>)| {
        let functions = match item.ty {
            ComponentItem::ComponentInstance(instance) => instance
                .exports(engine)
                .filter(|(_, item)| matches!(item.ty, ComponentItem::ComponentFunc(_)))
                .map(|(name, _)| name.to_owned())
                .collect(),
            _ => Vec::new(),
        };
        // What was neither granted nor denied and is here all the same is the contract's.
        let access = grants.access(name).unwrap_or(Access::Contract);
        Import { interface: name.to_owned(), functions, access }
    };
    let is_type = |item: &ComponentItem| matches!(item, ComponentItem::Type(_));
    component.imports(engine).filter(|(_, item)| !is_type(&item.ty)).map(import).collect()
}

impl Component {
    /// SHA-256 of the file's bytes, in hex.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.inner.digest
    }

    /// What the operator declares.
    #[must_use]
    pub fn contract(&self) -> &OperatorContract {
        &self.inner.contract
    }

    /// The file's bytes, as they were loaded: a checkpoint stores them.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.inner.bytes
    }

    /// The file's size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.inner.bytes.len()
    }

    /// What it imports.
    #[must_use]
    pub fn imports(&self) -> &[Import] {
        &self.inner.imports
    }

    /// The grants that give it an import.
    #[must_use]
    pub fn granted(&self) -> Vec<Grant> {
        let has = |grant: &Grant| self.imports().iter().any(|import| import.access == Access::Granted(*grant));
        Grant::ALL.into_iter().filter(has).collect()
    }

    /// The interfaces that it imports and that trap when it calls them.
    #[must_use]
    pub fn denied(&self) -> Vec<&str> {
        let denied = self.imports().iter().filter(|import| import.access == Access::Denied);
        denied.map(|import| import.interface.as_str()).collect()
    }

    /// The names of what it exports; languages' runtimes add some of their own.
    #[must_use]
    pub fn exports(&self) -> &[String] {
        &self.inner.exports
    }

    /// The version of the contract that it was built for.
    #[must_use]
    pub fn wit_version(&self) -> &str {
        &self.inner.wit_version
    }

    /// Whether the file was a core module, of which the component was made here.
    #[must_use]
    pub fn was_core_module(&self) -> bool {
        self.inner.was_core_module
    }
}

impl GuestFactory for Component {
    fn contract(&self) -> &OperatorContract {
        &self.inner.contract
    }

    fn digest(&self) -> &str {
        &self.inner.digest
    }

    fn instantiate(&self, options: &InstanceOptions, state: SharedState) -> Result<Box<dyn Guest>, CallError> {
        let Inner { contract, pre, channel, engine, .. } = &*self.inner;
        let mut instance = Instance::start(engine, pre, Arc::clone(contract), options, state, Arc::clone(channel))?;
        instance.configure(options)?;
        Ok(Box::new(instance))
    }
}

impl fmt::Debug for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { name, digest, .. } = &*self.inner;
        f.debug_struct("Component").field("name", name).field("digest", digest).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
