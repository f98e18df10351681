//! What stands in the way of a tile: `tiles.txt` has tiles of every mainloop, each with one number changed at a time.
//!
//! A line at the margin is a problem, as in `choices.txt`, and behind a `|` the tile that is asked for. The lines below it are
//! what the planner says. The first has estimates of the epilogue's length and of the time to compile, what a launch takes, and
//! what the kernel's text says of the tile.
//! The others are refusals, each with the changes that it refuses. Changes that no line names are accepted.
//! `BLESS=1 cargo test --test choices` rewrites these lines, and puts the chosen tile in place of a `?`.

use crate::{Line, changed};
use postlude::Gemm;
use postlude::plan::{Considered, KernelPlan, PlanError, Tile};
use postlude::prelude::Shape;
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;

/// What takes the place of a number.
fn others(number: u64) -> Vec<u64> {
    let mut others = vec![0, 1, 3, number / 4, number / 2, number + 1, number + 8, 2 * number, 64 * number];
    others.sort_unstable();
    others.dedup();
    others.retain(|other| *other != number);
    others
}

/// Every value with one leaf changed, with words for the change. `name` is that of the value.
fn changes(value: &Value, name: &str) -> Vec<(String, Value)> {
    let leaf = |new: Value| (format!("{name}={}", new.to_string().trim_matches('"')), new);
    match value {
        Value::Number(number) => others(number.as_u64().unwrap()).into_iter().map(|other| leaf(other.into())).collect(),
        Value::Bool(is) => vec![leaf((!is).into())],
        Value::String(word) if word == "ping_pong" => vec![leaf("cooperative".into())],
        Value::String(word) if word == "cooperative" => vec![leaf("ping_pong".into())],
        Value::Array(list) => {
            let of_item = |i: usize| {
                let with = move |(words, item)| {
                    let mut list = list.clone();
                    list[i] = item;
                    (words, list.into())
                };
                changes(&list[i], &format!("{name}.{i}")).into_iter().map(with)
            };
            (0..list.len()).flat_map(of_item).collect()
        }
        Value::Object(map) => {
            let of_field = |(key, item): (&String, &Value)| {
                let with = |(words, item)| {
                    let mut map = map.clone();
                    map[key] = item;
                    (words, map.into())
                };
                changes(item, key).into_iter().map(with).collect::<Vec<_>>()
            };
            map.iter().flat_map(of_field).collect()
        }
        _ => Vec::new(),
    }
}

/// What a launch on the shape takes, what the kernel's text says of the tile, and the length of its epilogue.
fn facts(plan: &KernelPlan, shape: Shape) -> String {
    let source = plan.source().unwrap();
    let numbers = source.text().lines().skip_while(|line| !line.starts_with("constexpr int STRIP")).map_while(|line| {
        let number = line.strip_prefix("constexpr int ")?;
        Some(number.trim_end_matches(';').replace(" = ", "="))
    });
    let numbers: Vec<String> = numbers.collect();
    let (instructions, time) = (plan.code.instructions, plan.compile_time().as_millis());
    let (grid, workspace) = (plan.grid(shape).unwrap(), plan.workspace(shape).bytes);
    let launch = format!("{}x{}x{} blocks, {workspace} bytes of workspace", grid[0], grid[1], grid[2]);
    format!("{instructions} instructions, {time} ms, {launch}; {}", numbers.join(", "))
}

/// The plan of a tile, or why the planner does not take it.
fn plan(line: &Line, tile: Tile) -> Result<KernelPlan, String> {
    let gemm: Gemm = line.gemm.clone().tile(tile);
    gemm.kernel_plan(line.target, line.multiprocessors, line.problem.clone()).map_err(|error| match error {
        PlanError::NoTile(choice) => {
            let of_tile = choice.verdicts.iter().find(|verdict| verdict.candidate == Considered::Tile(tile));
            of_tile.map_or_else(|| "no kernel takes it".to_owned(), |verdict| verdict.reason.to_string())
        }
        error => error.to_string().lines().next().unwrap_or_default().to_owned(),
    })
}

#[test]
fn what_stands_in_the_way_of_a_tile() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/choices/tiles.txt");
    let old = std::fs::read_to_string(&path).unwrap().replace("\r\n", "\n");
    let (mut new, mut tiles) = (String::new(), 0);
    for line in old.lines().filter(|line| !line.starts_with(' ')) {
        let Some((asked, tile)) = line.split_once('|').filter(|_| !line.starts_with('#')) else {
            let _ = writeln!(new, "{line}");
            continue;
        };
        let problem = Line::read(asked).unwrap_or_else(|| panic!("not a problem: `{asked}`"));
        let tile = if tile.trim() == "?" { problem.chosen() } else { tile.trim().to_owned() };
        let tile = tile.as_str();
        let _ = writeln!(new, "{asked}| {tile}");
        let own: Value = serde_json::from_str(tile).unwrap_or_else(|error| panic!("not a tile: {error}: `{tile}`"));
        let tile_of = |value: Value| serde_json::from_value(value).unwrap();
        let planned = plan(&problem, tile_of(own.clone())).unwrap_or_else(|why| panic!("{line}: {why}"));
        let _ = writeln!(new, "    {}", facts(&planned, problem.problem.shape));
        let mut refusals: Vec<(String, String)> = Vec::new();
        for (words, tile) in changes(&own, "") {
            let Err(refusal) = plan(&problem, tile_of(tile)) else { continue };
            match refusals.iter_mut().find(|(known, _)| *known == refusal) {
                Some((_, which)) => *which += &format!(", {words}"),
                None => refusals.push((refusal, words)),
            }
        }
        for (refusal, which) in refusals {
            let _ = writeln!(new, "    {refusal}: {which}");
        }
        tiles += 1;
    }
    assert!(tiles >= 12, "the table has lost its tiles: {tiles} are left");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &new).unwrap();
        return;
    }
    assert!(new == old, "other refusals than in {}; BLESS=1 rewrites it:\n{}", path.display(), changed(&old, &new));
}
