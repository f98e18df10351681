//! The contents of a directory as tables.

use postlude::jit::{CachedFile, Holds};
use std::collections::BTreeMap;
use std::time::SystemTime;

/// A number of bytes in a readable unit.
pub fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} B"),
        10_000..10_000_000 => format!("{:.1} KiB", count as f64 / 1024.0),
        _ => format!("{:.1} MiB", count as f64 / (1024.0 * 1024.0)),
    }
}

/// An age in one unit.
fn age(used: SystemTime, now: SystemTime) -> String {
    let hours = now.duration_since(used).unwrap_or_default().as_secs() / 3600;
    if hours < 48 { format!("{hours} h") } else { format!("{} d", hours / 24) }
}

pub fn list(files: &[CachedFile], now: SystemTime) {
    say!("{:<12} {:<8} {:<18} {:>4} {:>7} {:>11} {:>6}  compiler", "key", "target", "entry", "regs", "spills", "size", "used");
    for file in files {
        let (size, used) = (bytes(file.bytes), age(file.used, now));
        match &file.holds {
            Ok(Holds::Kernel(info)) => {
                let spills = u64::from(info.spill_store_bytes) + u64::from(info.spill_load_bytes);
                let (key, target) = (info.key.get(..12).unwrap_or(&info.key), info.target.to_string());
                let entry = &info.entry;
                say!(
                    "{key:<12} {target:<8} {entry:<18} {:>4} {spills:>7} {size:>11} {used:>6}  {}",
                    info.registers,
                    info.compiler
                );
            }
            Ok(held @ (Holds::Compiler(compiler) | Holds::Library(compiler))) => {
                let what = if matches!(held, Holds::Compiler(_)) { "(compiler)" } else { "(library)" };
                say!("{:<12} {:<8} {what:<18} {:>4} {:>7} {size:>11} {used:>6}  {compiler}", name(file), "", "", "")
            }
            Ok(_) => say!("{:<12} {:<8} {:<18} {:>4} {:>7} {size:>11} {used:>6}", name(file), "", "(note)", "", ""),
            Err(why) => say!("{:<12} {why}", name(file)),
        }
    }
}

fn name(file: &CachedFile) -> String {
    file.path.file_stem().unwrap_or_default().to_string_lossy().chars().take(12).collect()
}

pub fn statistics(files: &[CachedFile]) {
    let mut groups: BTreeMap<(&str, String), (u64, u64)> = BTreeMap::new();
    let mut add = |kind, name: String, bytes| {
        let group = groups.entry((kind, name)).or_default();
        (group.0, group.1) = (group.0 + 1, group.1 + bytes);
    };
    for file in files {
        match &file.holds {
            Ok(Holds::Kernel(info)) => {
                add("target", info.target.to_string(), file.bytes);
                add("compiler", info.compiler.clone(), file.bytes);
            }
            Ok(Holds::Compiler(_)) => add("compilers", String::new(), file.bytes),
            Ok(Holds::Library(_)) => add("libraries", String::new(), file.bytes),
            Ok(_) => add("notes", String::new(), file.bytes),
            Err(_) => add("damaged", String::new(), file.bytes),
        }
    }
    for ((kind, name), (count, size)) in groups {
        let noun = if kind == "target" || kind == "compiler" { "kernels" } else { "files" };
        say!("{kind:<14}{name}{}{count} {noun}, {}", if name.is_empty() { "" } else { ": " }, bytes(size));
    }
    say!("together      {} files, {}", files.len(), bytes(files.iter().map(|file| file.bytes).sum()));
}
