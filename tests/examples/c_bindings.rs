//! Makes the C bindings of a WIT file's world: `c_bindings WIT FOLDER`.
//!
//! What `wit-bindgen c` does, in the version that the Rust SDK has, so that nobody needs to install it.

use std::error::Error;
use std::path::PathBuf;

use wit_bindgen_core::Files;
use wit_bindgen_core::wit_parser::Resolve;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(wit), Some(folder), None) = (arguments.next(), arguments.next(), arguments.next()) else {
        return Err("usage: c_bindings WIT FOLDER".into());
    };
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(wit)?;
    let world = resolve.select_world(&[package], None)?;
    let mut files = Files::default();
    wit_bindgen_c::Opts::default().build().generate(&mut resolve, world, &mut files)?;
    let folder = PathBuf::from(folder);
    std::fs::create_dir_all(&folder)?;
    for (name, content) in files.iter() {
        std::fs::write(folder.join(name), content)?;
    }
    Ok(())
}
