//! What a file is, before anything is compiled: module or component, what it imports and exports, which contract it is for.
//!
//! Owns the first look at untrusted bytes. Does not own validation (wasmtime does that when it compiles).

use wasmparser::{
    ComponentType, ComponentTypeDeclaration, ComponentTypeRef, Encoding, InstanceTypeDeclaration, Parser, Payload,
    TypeBounds,
};

use super::contract::{PACKAGE, VERSION};
use super::grants::Grants;
use super::load::Error;

/// The interfaces of the contract that a component may import.
const INTERFACES: [&str; 3] = ["types", "state", "diagnostics"];

/// The functions that a component must export.
pub(super) const EXPORTS: [&str; 7] = ["describe", "configure", "process", "fire", "migrate", "rekey", "merge"];

/// What the bytes are.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outline {
    /// A core module, not a component.
    pub(super) is_core: bool,
    /// A core module carries the section from which a component can be made.
    pub(super) has_component_type: bool,
    /// The names of what it imports: a component's interfaces, a module's modules; each once.
    pub(super) imports: Vec<String>,
    /// The names of what it exports.
    pub(super) exports: Vec<String>,
    /// The packages, with version, of the interfaces that the component-type section names, each once.
    pub(super) packages: Vec<String>,
}

/// Reads the outline.
///
/// # Errors
/// Bytes that are no WebAssembly, cut off or damaged.
pub(super) fn outline(bytes: &[u8]) -> Result<Outline, Error> {
    if bytes.is_empty() {
        return Err(Error::Empty);
    }
    if !bytes.starts_with(b"\0asm") {
        let is_text = bytes.trim_ascii_start().starts_with(b"(");
        return Err(Error::NotWasm { is_text });
    }
    let mut outline = Outline::default();
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(|error| broken(&error, bytes.len()))?;
        match payload {
            Payload::Version { encoding, .. } if depth == 0 => outline.is_core = encoding == Encoding::Module,
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            _ if depth == 0 => outline.add(payload).map_err(|error| broken(&error, bytes.len()))?,
            _ => {}
        }
    }
    Ok(outline)
}

impl Outline {
    fn add(&mut self, payload: Payload<'_>) -> wasmparser::Result<()> {
        match payload {
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    self.import(import?.module);
                }
            }
            Payload::ComponentImportSection(imports) => {
                for import in imports {
                    let import = import?;
                    // A type by itself (`use` at the world's level) gives nothing to the component.
                    if !matches!(import.ty, ComponentTypeRef::Type(TypeBounds::Eq(_))) {
                        self.import(&import.name.full_name());
                    }
                }
            }
            Payload::ComponentExportSection(exports) => {
                for export in exports {
                    self.exports.push(export?.name.full_name().into_owned());
                }
            }
            Payload::CustomSection(section) if section.name().starts_with("component-type") => {
                self.has_component_type = true;
                self.read_world(section.data(), section.data_offset())?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Collects the packages that a component-type section names. wit-component, which reads the section next, follows the
    /// packages' dependencies without an end when they form a circle.
    fn read_world(&mut self, section: &[u8], offset: u64) -> wasmparser::Result<()> {
        for payload in Parser::new(offset).parse_all(section) {
            if let Payload::ComponentTypeSection(types) = payload? {
                for ty in types {
                    self.read_type(&ty?);
                }
            }
        }
        Ok(())
    }

    /// As deep as wasmparser lets types nest.
    fn read_type(&mut self, ty: &ComponentType<'_>) {
        match ty {
            ComponentType::Component(declarations) => {
                for declaration in declarations {
                    match declaration {
                        ComponentTypeDeclaration::Type(ty) => self.read_type(ty),
                        ComponentTypeDeclaration::Import(import) => self.read_name(&import.name.full_name(), import.ty),
                        ComponentTypeDeclaration::Export { name, ty } => self.read_name(&name.full_name(), *ty),
                        _ => {}
                    }
                }
            }
            ComponentType::Instance(declarations) => {
                for declaration in declarations {
                    match declaration {
                        InstanceTypeDeclaration::Type(ty) => self.read_type(ty),
                        InstanceTypeDeclaration::Export { name, ty } => self.read_name(&name.full_name(), *ty),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    /// `PACKAGE/INTERFACE@VERSION` of an interface; the world's own name is that of a component.
    fn read_name(&mut self, name: &str, ty: ComponentTypeRef) {
        let (ComponentTypeRef::Instance(_), Some((package, interface))) = (ty, name.split_once('/')) else { return };
        let version = interface.split_once('@').map_or("", |(_, version)| version);
        let package = format!("{package}@{version}");
        if !self.packages.contains(&package) {
            self.packages.push(package);
        }
    }

    fn import(&mut self, name: &str) {
        if self.imports.iter().all(|known| known != name) {
            self.imports.push(name.to_owned());
        }
    }

    /// Checks that nothing is imported but the contract, in a version that this host speaks, and what `grants` allow.
    ///
    /// # Errors
    /// What is not granted, by name, or the version that the component was built for.
    pub(super) fn check_imports(&self, grants: &Grants) -> Result<(), Error> {
        let mut refused = Vec::new();
        for import in &self.imports {
            let Some((interface, version)) = contract_import(import) else {
                if grants.access(import).is_none() {
                    refused.push(import.clone());
                }
                continue;
            };
            if !version.is_some_and(speaks) {
                return Err(Error::ContractVersion { built_for: shown_version(import) });
            }
            if !INTERFACES.contains(&interface) {
                refused.push(import.clone());
            }
        }
        match (refused.is_empty(), self.is_core) {
            (true, _) => Ok(()),
            (false, true) => Err(Error::CoreNotGranted { imports: refused }),
            (false, false) => Err(Error::NotGranted { imports: refused }),
        }
    }

    /// Checks that the contract's functions are exported. Others may be: QuickJS and Python add one of their own.
    ///
    /// # Errors
    /// The functions that are missing, by name.
    pub(super) fn check_exports(&self) -> Result<(), Error> {
        let exported = |name: &&str| self.exports.iter().any(|export| export == name);
        let missing: Vec<_> = EXPORTS.into_iter().filter(|name| !exported(name)).map(str::to_owned).collect();
        if missing.is_empty() { Ok(()) } else { Err(Error::MissingExports { exports: missing }) }
    }

    /// The version of the contract that a component imports its types from.
    pub(super) fn contract_version(&self) -> Option<String> {
        let import = self.imports.iter().find(|import| contract_import(import).is_some())?;
        Some(shown_version(import))
    }
}

/// The interface and version of an import of the contract's package.
fn contract_import(import: &str) -> Option<(&str, Option<(u64, u64)>)> {
    let rest = import.strip_prefix(PACKAGE)?.strip_prefix('/')?;
    let (interface, version) = rest.split_once('@').unwrap_or((rest, ""));
    let mut numbers = version.split('.').map(str::parse);
    let version = match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
        _ => None,
    };
    Some((interface, version))
}

/// Records are frozen within a minor version.
fn speaks((major, minor): (u64, u64)) -> bool {
    (major, minor) == (VERSION.0, VERSION.1)
}

fn shown_version(import: &str) -> String {
    import.split_once('@').map_or("none", |(_, version)| version).to_owned()
}

fn broken(error: &wasmparser::Error, size: usize) -> Error {
    let (offset, cause) = (error.offset(), error.message().to_owned());
    if cause.contains("unexpected end") { Error::CutOff { offset, size } } else { Error::Damaged { offset, cause } }
}

#[cfg(test)]
mod tests;
