//! Imports point only downward through the layers of `ARCHITECTURE.md`, and `unsafe` stays in the listed files.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules of the crate, from the top layer to the bottom layer.
const LAYERS: [(&str, &[&str]); 9] = [
    ("interfaces", &["python"]),
    ("many machines", &["distributed"]),
    ("curation", &["curation", "partition"]),
    ("methods", &["kmeans", "gmm", "graph", "hierarchical", "kmodes"]),
    ("shared by methods", &["centers"]),
    ("fits and statistics", &["fit", "seeding", "stats", "persist"]),
    ("passes", &["pass"]),
    ("compute and rows", &["kernel", "data"]),
    (
        "common types",
        &[
            "error",
            "exponent",
            "float",
            "matrix",
            "names",
            "rng",
            "rows",
            "shuffle",
            "parallel",
            "tuning",
            "whole_file",
        ],
    ),
];

/// Layers whose modules must not import each other.
const STRANGERS: [&str; 2] = ["methods", "compute and rows"];

/// The exceptions: K-modes needs a neighbor graph, the cells of an approximate graph are a k-means partition, and
/// hierarchical k-means finds the centers around each center with a graph.
const KNOWN: [(&str, &str); 3] = [("kmodes", "graph"), ("graph", "kmeans"), ("hierarchical", "graph")];

/// The files that may contain `unsafe`.
const UNSAFE_ROOMS: [&str; 3] = ["src/kernel/", "src/data/raw/", "src/python/array.rs"];

/// Methods of a source that must be called through the counting functions of `crate::data`: `read`,
/// `read_from`, `gather`.
const COUNTED: [&str; 3] = ["for_each_block", "for_each_block_from", "gather"];

/// Files that implement sources on top of other sources; these do not count rows themselves.
const SOURCES: [&str; 2] = ["src/data/", "src/python/rows.rs"];

#[derive(Clone, Debug, PartialEq)]
struct Token {
    line: usize,
    text: String,
}

/// Identifiers, `::` and single punctuation marks; comments, strings, characters and numbers are skipped.
fn tokens(source: &str) -> Vec<Token> {
    let text: Vec<char> = source.chars().collect();
    let at = |i: usize| text.get(i).copied().unwrap_or('\0');
    let word = |c: char| c == '_' || c.is_alphanumeric();
    let mut out = Vec::new();
    let (mut i, mut line) = (0, 1);
    while i < text.len() {
        let start = i;
        match text[i] {
            '/' if at(i + 1) == '/' => i += text[i..].iter().take_while(|&&c| c != '\n').count(),
            '/' if at(i + 1) == '*' => {
                let mut depth = 0;
                while i < text.len() {
                    match (at(i), at(i + 1)) {
                        ('/', '*') => (depth, i) = (depth + 1, i + 2),
                        ('*', '/') => (depth, i) = (depth - 1, i + 2),
                        _ => i += 1,
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
            '"' => i = string_end(&text, i + 1),
            '\'' if at(i + 1) == '\\' => {
                i += 3;
                i += text[i.min(text.len())..].iter().take_while(|&&c| c != '\'').count() + 1;
            }
            '\'' if at(i + 2) == '\'' => i += 3,
            ':' if at(i + 1) == ':' => {
                out.push(Token { line, text: "::".into() });
                i += 2;
            }
            c if word(c) => {
                i += text[i..].iter().take_while(|&&c| word(c)).count();
                let name: String = text[start..i].iter().collect();
                let hashes = text[i..].iter().take_while(|&&c| c == '#').count();
                if matches!(name.as_str(), "r" | "br" | "cr") && at(i + hashes) == '"' {
                    let end: Vec<char> =
                        std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
                    i += hashes + 1;
                    i += text[i..].windows(hashes + 1).take_while(|w| **w != end[..]).count() + hashes + 1;
                } else if !c.is_numeric() {
                    out.push(Token { line, text: name });
                }
            }
            c => {
                if !c.is_whitespace() {
                    out.push(Token { line, text: c.into() });
                }
                i += 1;
            }
        }
        line += text[start..i.min(text.len())].iter().filter(|&&c| c == '\n').count();
    }
    out
}

/// The index after the closing quote of the string whose text begins at `i`.
fn string_end(text: &[char], mut i: usize) -> usize {
    while i < text.len() && text[i] != '"' {
        i += if text[i] == '\\' { 2 } else { 1 };
    }
    i + 1
}

/// First segments of the import that starts at `from`: one for `a::b`, several for `{a::b, c}`. `*` stands for itself.
fn heads(tokens: &[Token], from: usize) -> Vec<Token> {
    match tokens.get(from) {
        Some(t) if t.text == "{" => {
            let (mut depth, mut fresh, mut found) = (0, true, Vec::new());
            for t in &tokens[from..] {
                match t.text.as_str() {
                    "{" => depth += 1,
                    "}" => depth -= 1,
                    "," if depth == 1 => fresh = true,
                    _ if depth == 1 && fresh => {
                        found.push(t.clone());
                        fresh = false;
                    }
                    _ => {}
                }
                if depth == 0 {
                    break;
                }
            }
            found
        }
        Some(t) => vec![t.clone()],
        None => Vec::new(),
    }
}

/// Names that a file at module depth `depth` imports from the crate root: after `crate::`, or after enough `super::`.
fn root_names(tokens: &[Token], depth: usize) -> Vec<Token> {
    let is = |i: usize, text: &str| tokens.get(i).is_some_and(|t| t.text == text);
    // One entry for every open brace: whether an inline module opened it.
    let mut braces: Vec<bool> = Vec::new();
    let mut found = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        match tokens[i].text.as_str() {
            "{" => braces.push(i >= 2 && is(i - 2, "mod")),
            "}" => drop(braces.pop()),
            "crate" if is(i + 1, "::") => found.extend(heads(tokens, i + 2)),
            "super" if is(i + 1, "::") => {
                let ups = tokens[i..].chunks(2).take_while(|c| c[0].text == "super" && c.len() == 2).count();
                if ups >= depth + braces.iter().filter(|&&module| module).count() {
                    found.extend(heads(tokens, i + 2 * ups));
                }
                i += 2 * ups - 1;
            }
            _ => {}
        }
        i += 1;
    }
    found
}

/// The modules from which `lib.rs` re-exports names with `pub use module::{..}`.
fn reexports(lib: &str) -> HashMap<String, String> {
    let tokens = tokens(lib);
    let mut found = HashMap::new();
    for (i, t) in tokens.iter().enumerate().filter(|(_, t)| t.text == "use") {
        let statement: Vec<&str> =
            tokens[i..].iter().map(|t| t.text.as_str()).take_while(|&t| t != ";").collect();
        let path =
            if statement[1..].starts_with(&["crate", "::"]) { &statement[3..] } else { &statement[1..] };
        assert!(path.first() != Some(&"{"), "src/lib.rs:{}: one `use` for each module, please", t.line);
        for (j, name) in path.iter().enumerate().skip(1) {
            if matches!(path.get(j + 1), None | Some(&("," | "}"))) {
                found.insert((*name).to_owned(), path[0].to_owned());
            }
        }
    }
    found
}

/// Name and height of the layer that holds `module`.
fn layer(module: &str) -> Option<(&'static str, usize)> {
    let height = |i: usize| LAYERS.len() - i;
    LAYERS.iter().enumerate().find(|(_, l)| l.1.contains(&module)).map(|(i, l)| (l.0, height(i)))
}

/// Violations in the file at `path`, relative to the repository, as `file:line: violation`.
fn offences(path: &str, source: &str, reexports: &HashMap<String, String>) -> Vec<String> {
    let tokens = tokens(source);
    let mut found = Vec::new();
    if !UNSAFE_ROOMS.iter().any(|room| path.starts_with(room)) {
        let lines = tokens.iter().filter(|t| t.text == "unsafe").map(|t| t.line);
        found.extend(lines.map(|line| format!("{path}:{line}: `unsafe` outside {UNSAFE_ROOMS:?}")));
    }
    if !SOURCES.iter().any(|sources| path.starts_with(sources)) && !path.ends_with("/tests.rs") {
        // `(table.gather)(..)` calls a function in a field, not a method of a source.
        let calls = tokens.windows(3).filter(|t| {
            let called = matches!(t[2].text.as_str(), "(" | "::");
            t[0].text == "." && COUNTED.contains(&t[1].text.as_str()) && called
        });
        found.extend(
            calls.map(|t| format!("{path}:{}: `{}` of a source counts no rows", t[1].line, t[1].text)),
        );
    }
    let inside: Vec<&str> = path.trim_start_matches("src/").trim_end_matches(".rs").split('/').collect();
    if inside == ["lib"] {
        return found;
    }
    let depth = inside.len() - usize::from(inside.last() == Some(&"mod"));
    let own = inside[0];
    let Some((own_layer, own_height)) = layer(own) else {
        found.push(format!("{path}:1: `{own}` is in no layer: add it to LAYERS in {}", file!()));
        return found;
    };
    for Token { line, text } in root_names(&tokens, depth) {
        let other = reexports.get(&text).map_or(text.as_str(), String::as_str);
        let same = layer(other).is_some_and(|(other_layer, _)| other_layer == own_layer);
        match layer(other) {
            None => found
                .push(format!("{path}:{line}: `crate::{text}` is in no layer: name the module it lies in")),
            Some((other_layer, height)) if height > own_height => found.push(format!(
                "{path}:{line}: `{own}` ({own_layer}) imports `{other}` ({other_layer}), which lies above it"
            )),
            Some(_)
                if own != other
                    && STRANGERS.contains(&own_layer)
                    && same
                    && !KNOWN.contains(&(own, other)) =>
            {
                found.push(format!(
                    "{path}:{line}: `{own}` imports `{other}`; the two must not know each other"
                ));
            }
            Some(_) => {}
        }
    }
    found
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn imports_point_downward_and_unsafe_stays_in_its_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let reexports = reexports(&fs::read_to_string(root.join("src/lib.rs")).unwrap());
    let files = rust_files(&root.join("src"));
    assert!(files.len() > 5, "found only {files:?}");
    let found: Vec<String> = files
        .iter()
        .flat_map(|file| {
            let path = file.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
            offences(&path, &fs::read_to_string(file).unwrap(), &reexports)
        })
        .collect();
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

fn lines(path: &str, source: &str) -> Vec<usize> {
    let reexports = reexports("pub use error::{Error, Result};\npub use kmeans::lloyd::Lloyd as Plain;");
    let found = offences(path, source, &reexports);
    found.iter().map(|o| o.split(':').nth(1).unwrap().parse().unwrap()).collect()
}

#[test]
fn upward_imports_are_found() {
    let source = "\
use crate::error::Error;
use crate::{
    matrix::{MatRef, Rows},
    fit::{Step, Run},
    Result,
};
// use crate::kmeans::Lloyd;
/* use crate::kmeans /* nested */ ::Lloyd; */
const TEXT: &str = \"crate::kmeans \\\" crate::gmm\";
const RAW: &str = r#\"crate::kmeans \" \"#;
fn f<'a>(x: &'a str) -> char { crate::kmeans::f(x); '\\'' }
fn g() -> crate::Plain { '\"'; super::super::gmm::g() }
mod tests {
    use super::super::super::kmodes;
    fn h() { if true { super::super::table() } }
}
pub(in crate::kernel) use crate::data::Block;
";
    assert_eq!(lines("src/kernel/pack.rs", source), [4, 11, 12, 12, 14, 17]);
}

#[test]
fn downward_and_sideways_imports_are_fine() {
    let source = "use crate::kernel::nearest;\nuse crate::centers::label;\nuse crate::{Result, data::Block};\nuse super::x;";
    assert_eq!(lines("src/gmm/mod.rs", &source.replace("super", "self")), [0; 0]);
    assert_eq!(lines("src/gmm/truncated.rs", source), [0; 0]);
    assert_eq!(lines("src/kmodes/modes.rs", "use crate::graph::knn_graph;"), [0; 0]);
    assert_eq!(lines("src/graph/cells.rs", "use crate::kmeans::KMeans;"), [0; 0]);
}

#[test]
fn methods_do_not_import_each_other() {
    assert_eq!(lines("src/gmm/mod.rs", "use crate::kmeans::Lloyd;"), [1]);
    assert_eq!(
        lines("src/kmeans/lloyd/mod.rs", "use crate::gmm::Covariance;\nuse crate::kmodes::Affinity;"),
        [1, 2]
    );
    assert_eq!(lines("src/kernel/pack.rs", "use crate::data::Block;"), [1]);
}

#[test]
fn unknown_names_and_modules_are_found() {
    assert_eq!(lines("src/gmm/mod.rs", "use crate::helpers::x;\nuse crate::*;"), [1, 2]);
    assert_eq!(lines("src/helpers.rs", "\nfn f() {}"), [1]);
    assert_eq!(lines("src/data/mod.rs", "use super::fit::Step;"), [1]);
}

#[test]
fn uncounted_reads_are_found() {
    let source = "fn f() {\n data.for_each_block(1, f);\n data::gather(data, rows, out);\n data.gather(rows, out);\n (table.gather)(rows) }";
    assert_eq!(lines("src/pass/sweep.rs", source), [2, 4]);
    for path in ["src/data/subset.rs", "src/python/rows.rs", "src/kmeans/nested/tests.rs"] {
        assert_eq!(lines(path, source), [0; 0]);
    }
}

#[test]
fn unsafe_in_other_files_is_found() {
    let source = "#![deny(unsafe_code)]\n// unsafe\nfn f() { unsafe { g() } }";
    assert_eq!(lines("src/data/npy.rs", source), [3]);
    assert_eq!(lines("src/lib.rs", source), [3]);
    for room in ["src/data/raw/rows.rs", "src/python/array.rs", "src/kernel/arch/x86_64/avx2.rs"] {
        assert_eq!(lines(room, source), [0; 0]);
    }
}
