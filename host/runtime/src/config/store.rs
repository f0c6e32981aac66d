//! The text of `[checkpoint] store`.
//!
//! Owns that a path in it is absolute, and which variables of the environment hold what opens its store. Does not open it.

use std::path::Path;

/// A path becomes absolute; a URL stays.
pub(super) fn resolve(base: &Path, store: &str) -> String {
    if store.is_empty() || store.contains("://") || store.starts_with("memory:") {
        store.to_owned()
    } else {
        super::pipeline::resolve(base, Path::new(store)).to_string_lossy().into_owned()
    }
}

/// The variables that hold secrets of `store`: what they hold is masked wherever text is shown, as if `${env:…}` had brought it in.
pub(super) fn secret_variables(store: &str) -> &'static [&'static str] {
    match store.split_once("://").map(|(scheme, _)| scheme) {
        Some("s3" | "s3a") => {
            &["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_TOKEN", "AWS_SSE_CUSTOMER_KEY_BASE64"]
        }
        Some("gs") => &["GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_BEARER_TOKEN"],
        Some("az" | "abfs" | "abfss") => &[
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_ACCESS_KEY",
            "AZURE_STORAGE_MASTER_KEY",
            "AZURE_STORAGE_SAS_KEY",
            "AZURE_STORAGE_SAS_TOKEN",
            "AZURE_STORAGE_CLIENT_SECRET",
            "AZURE_STORAGE_TOKEN",
            "AZURE_STORAGE_ENCRYPTION_KEY",
            "AZURE_CLIENT_SECRET",
        ],
        _ => &[],
    }
}
