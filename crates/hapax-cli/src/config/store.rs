//! The URL of a checkpoint store: what can be said of it before a disk is touched.
//!
//! The same rules are the store's own, which a library user meets when it is opened; in a pipeline file they are
//! mistakes of the file, and known when it is read.

use std::path::Path;

/// Checks a URL.
///
/// # Errors
/// No store can be there; the text follows the quoted URL.
pub(super) fn check(url: &str) -> Result<(), String> {
    let Some((kind, path)) = url.split_once("://") else {
        let example = if url.starts_with('/') { format!("file://{url}") } else { "file:///path".to_owned() };
        return Err(format!("is not a URL; write {example:?}"));
    };
    match kind {
        "memory" => Ok(()),
        "file" => check_path(path),
        _ => Err("is no kind of store that this release has; write \"file:///path\"".to_owned()),
    }
}

fn check_path(path: &str) -> Result<(), String> {
    if !path.starts_with('/') {
        return Err(format!(
            "has no absolute path; write \"file:///path\", with three strokes, not {path:?}"
        ));
    }
    if path.contains(['%', '?', '#']) || path.contains(char::is_control) {
        return Err("has a path that is taken as it stands, and must not contain '%', '?', '#' or control \
                    characters; choose another folder"
            .to_owned());
    }
    if path.split('/').any(|part| part == "." || part == "..") {
        return Err("has a path with \".\" or \"..\" in it, beside which nothing can be put by name; write it straight"
            .to_owned());
    }
    if Path::new(path).parent().is_none() {
        return Err(
            "is the root of the file system, which is no place for checkpoints; name a folder".to_owned()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_or_memory_is_a_store() {
        for url in ["file:///var/lib/hapax", "file:///a b/ü/", "memory://"] {
            assert_eq!(check(url), Ok(()), "{url}");
        }
    }

    #[test]
    fn what_can_never_be_a_store_says_why() {
        for (url, why) in [
            ("/var/lib", "is not a URL; write \"file:///var/lib\""),
            ("rel", "is not a URL; write \"file:///path\""),
            ("", "is not a URL"),
            ("file://rel", "has no absolute path"),
            ("file://", "has no absolute path"),
            ("file:///", "is the root of the file system"),
            ("file:////", "is the root of the file system"),
            ("file:///a/.", "write it straight"),
            ("file:///a/../b", "write it straight"),
            ("file:///a%20b", "must not contain '%'"),
            ("file:///a?b", "must not contain"),
            ("file:///a#b", "must not contain"),
            ("file:///a\0b", "must not contain"),
            ("s3://bucket/x", "is no kind of store that this release has"),
            ("s3://", "is no kind of store"),
            ("://", "is no kind of store"),
        ] {
            let found = check(url).unwrap_err();
            assert!(found.contains(why), "{url}: {found}");
        }
    }
}
