//! Names of imports and what is said of them. Owns no rule.

use super::*;

fn importing(imports: &[&str]) -> Outline {
    Outline { imports: imports.iter().map(|name| (*name).to_owned()).collect(), ..Outline::default() }
}

#[test]
fn any_patch_of_this_minor_version_is_spoken() {
    for version in ["0.1.0", "0.1.7"] {
        assert_eq!(
            importing(&[&format!("wasmill:operator/types@{version}")]).check_imports(&Grants::default()),
            Ok(())
        );
    }
    for version in ["0.2.0", "1.1.0", "0.0.9", "x", ""] {
        let outline = importing(&[&format!("wasmill:operator/types@{version}")]);
        assert_eq!(
            outline.check_imports(&Grants::default()),
            Err(Error::ContractVersion { built_for: version.to_owned() })
        );
    }
    let outline = importing(&["wasmill:operator/types"]);
    assert_eq!(outline.check_imports(&Grants::default()), Err(Error::ContractVersion { built_for: "none".to_owned() }));
}

#[test]
fn every_import_that_is_not_granted_is_named() {
    let outline = importing(&["wasmill:operator/types@0.1.0", "wasi:io/poll@0.2.0", "wasmill:operatorx/types@0.1.0"]);
    let refused = ["wasi:io/poll@0.2.0", "wasmill:operatorx/types@0.1.0"].map(str::to_owned).to_vec();
    assert_eq!(outline.check_imports(&Grants::default()), Err(Error::NotGranted { imports: refused }));
}
