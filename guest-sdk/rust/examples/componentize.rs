//! Makes a component of the core module that `cargo build --target wasm32-unknown-unknown` leaves.
//!
//! The host does the same by itself when it loads such a module; this is for a file that is to be kept:
//!
//! ```sh
//! cargo run --release -p wasmill-guest --example componentize -- MODULE.wasm COMPONENT.wasm
//! ```

use std::error::Error;

use wit_component::ComponentEncoder;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(module), Some(component), None) = (arguments.next(), arguments.next(), arguments.next()) else {
        return Err("usage: componentize MODULE.wasm COMPONENT.wasm".into());
    };
    let module = std::fs::read(module)?;
    let encoded = ComponentEncoder::default().validate(true).module(&module)?.encode()?;
    std::fs::write(component, encoded)?;
    Ok(())
}
