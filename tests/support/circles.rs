//! Circles among the files of a module, found from the names that files use.
//!
//! A file points at the file that *defines* what it names: an imported item, and a path such as `tile::Schedule` or
//! `crate::plan::Tile`. Re-exports are followed to the definition, so no `pub use` hides an edge. A file that only declares and
//! re-exports modules is their table of contents, and points at nothing. Calls of methods are not names: a file may extend a
//! type of a file that it points at.

use std::collections::{BTreeMap, BTreeSet};

/// A file as its names are resolved.
struct Names {
    /// The file's path below the root.
    file: String,
    /// The names of the items that it defines.
    items: BTreeSet<String>,
    /// What its `use` declarations bind: a name and a path. `*` is everything.
    uses: Vec<(String, Vec<String>)>,
    /// Paths of several names in its code.
    paths: Vec<Vec<String>>,
    /// Whether it only declares and re-exports modules.
    is_contents: bool,
}

/// For each file those that it points at, with the names that say so.
type Edges = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// The edges among the files of a crate.
pub struct Files(Edges);

impl Files {
    /// `files` are paths below the root with their code, without comments, strings and unit tests.
    pub fn new(files: impl IntoIterator<Item = (String, String)>) -> Files {
        let modules = files.into_iter().map(|(file, code)| (module_of(&file), names(file, &code))).collect();
        let resolver = Resolver { modules };
        Files(resolver.modules.iter().map(|(module, names)| (names.file.clone(), resolver.edges(module, names))).collect())
    }

    /// Every circle among the files below a folder, each as the files that reach one another.
    pub fn circles(&self, folder: &str) -> Vec<Vec<&str>> {
        let inside = |file: &&String| file.starts_with(folder);
        let reached = |from| {
            let (mut seen, mut next): (BTreeSet<&str>, Vec<&String>) = (BTreeSet::new(), vec![from]);
            while let Some(file) = next.pop() {
                next.extend(self.0[file].keys().filter(inside).filter(|to| seen.insert(to.as_str())));
            }
            seen
        };
        let reach: BTreeMap<&str, BTreeSet<&str>> =
            self.0.keys().filter(inside).map(|file| (file.as_str(), reached(file))).collect();
        let circle =
            |file: &&str| -> Vec<&str> { reach[file].iter().filter(|other| reach[*other].contains(file)).copied().collect() };
        let circles: BTreeSet<Vec<&str>> = reach.keys().map(circle).filter(|circle| !circle.is_empty()).collect();
        circles.into_iter().collect()
    }

    /// The edges between some files, in words.
    pub fn explain(&self, files: &[&str]) -> String {
        let mut out = String::new();
        for file in files {
            for (to, names) in self.0[*file].iter().filter(|(to, _)| files.contains(&to.as_str())) {
                out += &format!("    {file} names {to}: {}\n", names.iter().map(String::as_str).collect::<Vec<_>>().join(", "));
            }
        }
        out
    }
}

/// The files of a crate, by their module: `["plan", "mainloop", "tile"]`.
struct Resolver {
    modules: BTreeMap<Vec<String>, Names>,
}

impl Resolver {
    /// The files that a file points at.
    fn edges(&self, module: &[String], names: &Names) -> BTreeMap<String, BTreeSet<String>> {
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        if !names.is_contents {
            let mut add = |module: &[String], path: &[String]| {
                if let Some(file) = self.definition(module, path, 0).filter(|file| *file != names.file) {
                    edges.entry(file).or_default().insert(path.join("::"));
                }
            };
            names.uses.iter().map(|(_, path)| path).chain(&names.paths).for_each(|path| add(module, path));
            // Everything of a module: all that it re-exports.
            for (_, path) in names.uses.iter().filter(|(bound, _)| bound == "*") {
                let of = if path == &["super"] {
                    &module[..module.len() - 1]
                } else {
                    path.strip_prefix(&["crate".to_owned()][..]).unwrap_or(path)
                };
                let all = self.modules.get(of).into_iter().flat_map(|names| &names.uses);
                all.for_each(|(_, path)| add(of, path));
            }
        }
        edges
    }

    /// The file that defines what a path names in a module; `None` for names of other crates, and for modules themselves.
    fn definition(&self, module: &[String], path: &[String], depth: usize) -> Option<String> {
        let (mut at, mut rest) = match path.first()?.as_str() {
            "crate" => (Vec::new(), &path[1..]),
            "self" => (module.to_vec(), &path[1..]),
            "super" => (module[..module.len().checked_sub(1)?].to_vec(), &path[1..]),
            _ => (module.to_vec(), path),
        };
        let (mut first, named) = (rest.len() == path.len(), |at: &[String]| self.modules.get(at));
        loop {
            let name = rest.first()?;
            if name == "super" {
                at.pop()?;
                rest = &rest[1..];
                continue;
            }
            let child: Vec<String> = at.iter().chain([name]).cloned().collect();
            if self.modules.contains_key(&child) {
                (at, rest, first) = (child, &rest[1..], false);
                continue;
            }
            // The root re-exports what its modules define.
            let names = named(&at)?;
            if names.items.contains(name) {
                return Some(names.file.clone());
            }
            let bound = names.uses.iter().find(|(bound, _)| bound == name);
            let (mut path, follow) = match bound {
                Some((_, path)) => (path.clone(), true),
                None => (Vec::new(), false),
            };
            if follow && depth < 8 {
                path.extend_from_slice(&rest[1..]);
                return self.definition(&at, &path, depth + 1);
            }
            let mut globs = names.uses.iter().filter(|(bound, _)| bound == "*");
            let through = globs.find_map(|(_, path)| {
                let path: Vec<String> = path.iter().chain(rest).cloned().collect();
                if depth < 8 { self.definition(&at, &path, depth + 1) } else { None }
            });
            // A name that a macro makes is its file's. One that stands first, and is not bound, is of another crate.
            return through.or_else(|| (!first && !names.is_contents).then(|| names.file.clone()));
        }
    }
}

/// The module of a file below `src`.
fn module_of(file: &str) -> Vec<String> {
    let inside = file.trim_start_matches("src/").trim_end_matches(".rs");
    let parts = inside.split('/').map(str::to_owned);
    parts.filter(|part| part != "mod" && part != "lib").collect()
}

/// The names and signs of a text: identifiers, `::`, and every other character.
fn tokens(code: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut rest = code;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            _ if is_name(c) => rest.find(|c| !is_name(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            _ => c.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        if !c.is_whitespace() {
            out.push(token);
        }
        rest = after;
    }
    out
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// What introduces the name of an item.
const KINDS: [&str; 9] = ["struct", "enum", "union", "fn", "const", "static", "trait", "type", "macro_rules"];

/// The names of a file.
fn names(file: String, code: &str) -> Names {
    let tokens = tokens(code);
    let (mut items, mut uses, mut paths) = (BTreeSet::new(), Vec::new(), Vec::new());
    let (mut i, mut depth, mut is_contents) = (0, 0usize, true);
    // Where the braces of modules inside the file end: `super` is the file's own module there.
    let mut inner: Vec<usize> = Vec::new();
    while i < tokens.len() {
        match tokens[i] {
            "use" => {
                let end = i + tokens[i..].iter().position(|token| *token == ";").unwrap_or(tokens.len() - i - 1);
                let inside = tokens[i + 1] == "super" && !inner.is_empty();
                let tree: Vec<&str> =
                    if inside { [&["self"], &tokens[i + 2..end]].concat() } else { tokens[i + 1..end].to_vec() };
                bindings(&tree, &[], &mut uses);
                is_contents &= i > 0 && matches!(tokens[i - 1], "pub" | ")");
                i = end;
            }
            "{" => {
                inner.extend((i >= 2 && tokens[i - 2] == "mod").then_some(depth));
                depth += 1;
            }
            "}" => {
                depth = depth.saturating_sub(1);
                inner.pop_if(|outside| *outside == depth);
            }
            kind if KINDS.contains(&kind) && depth == 0 => {
                let skipped =
                    tokens[i + 1..].iter().position(|token| is_name(token) && !matches!(*token, "fn" | "mut" | "unsafe"));
                items.extend(skipped.map(|at| tokens[i + 1 + at].to_owned()));
                is_contents = false;
            }
            "impl" => is_contents = false,
            name if is_name(name) && tokens.get(i + 1) == Some(&"::") && (i == 0 || !matches!(tokens[i - 1], "::" | ".")) => {
                let name = if name == "super" && !inner.is_empty() { "self" } else { name };
                let mut path = vec![name.to_owned()];
                while tokens.get(i + 1) == Some(&"::") && tokens.get(i + 2).is_some_and(|next| is_name(next)) {
                    path.push(tokens[i + 2].to_owned());
                    i += 2;
                }
                paths.push(path);
            }
            _ => {}
        }
        i += 1;
    }
    Names { file, items, uses, paths, is_contents }
}

/// The names that the tree of a `use` declaration binds, with their paths.
fn bindings(tree: &[&str], before: &[String], out: &mut Vec<(String, Vec<String>)>) {
    let mut path = before.to_vec();
    let mut i = 0;
    while i < tree.len() {
        match tree[i] {
            "::" => {}
            "{" => {
                let (mut depth, mut from) = (0, i + 1);
                for at in i..tree.len() {
                    match tree[at] {
                        "{" => depth += 1,
                        "}" => depth -= 1,
                        _ => {}
                    }
                    if (depth == 1 && tree[at] == ",") || depth == 0 {
                        bindings(&tree[from..at], &path, out);
                        from = at + 1;
                    }
                    if depth == 0 {
                        return;
                    }
                }
            }
            "*" => return out.push(("*".into(), path)),
            "as" => return out.push((tree[i + 1].to_owned(), path)),
            name => path.push(name.to_owned()),
        }
        i += 1;
    }
    if path.len() > before.len() {
        if path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        out.push((path.last().cloned().unwrap_or_default(), path));
    }
}
