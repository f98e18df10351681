//! Kernels as programs of this machine: the very text that would go to NVRTC, with a shim in front of it and a `main` behind it.

use postlude::args::{Slot, SlotKind};
use postlude::plan::{FieldType, FieldValue, KernelPlan};
use postlude::prelude::*;
use postlude::problem::ScaleField;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The compiler of C++, if this machine has one that will do.
fn compiler() -> Option<&'static str> {
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    let find = || {
        let candidates = std::env::var("CXX").into_iter().chain(["c++", "g++", "clang++"].map(str::to_owned));
        // With the shim's includes and flags.
        let probe = "#include <sys/mman.h>\n#include <ucontext.h>\n_Float16 half;\n";
        let works = |name: &String| {
            let mut command = Command::new(name);
            command.args(["-std=c++17", "-fsyntax-only", "-x", "c++", "-"]).stdin(Stdio::piped());
            let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            child.is_ok_and(|mut child| {
                let fed = child.stdin.take().is_some_and(|mut stdin| stdin.write_all(probe.as_bytes()).is_ok());
                child.wait().is_ok_and(|status| status.success()) && fed
            })
        };
        let found = candidates.into_iter().find(works);
        let required = std::env::var_os("POSTLUDE_REQUIRE_CXX").is_some();
        assert!(
            found.is_some() || !required,
            "POSTLUDE_REQUIRE_CXX is set, and no C++ compiler knows _Float16 and ucontext: install g++ 12 or name one in CXX"
        );
        found
    };
    FOUND.get_or_init(find).as_deref()
}

/// Inline assembly as calls of functions that are named after its instruction: `ptx::max_NaN_f32(y, a, b)`.
fn without_assembly(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("asm") {
        let (before, from) = rest.split_at(at);
        let head = ["asm volatile(", "asm("].into_iter().find(|head| from.starts_with(head));
        let Some(head) = head.filter(|_| !before.ends_with(|c: char| c.is_alphanumeric() || c == '_')) else {
            out += before;
            out += "asm";
            rest = &from[3..];
            continue;
        };
        out += before;
        let (inside, behind) = from[head.len()..].split_once(");").expect("the end of a statement");
        // The text of the assembly may be in several literals. It ends with the first colon outside of them.
        let end = inside.match_indices(':').map(|(at, _)| at).find(|at| inside[..*at].matches('"').count() % 2 == 0);
        let (text, operands) = inside.split_at(end.unwrap_or(inside.len()));
        let text: String = text.split('"').skip(1).step_by(2).collect();
        // Predicates of its own come ahead of the instruction.
        let own = |line: &&str| !line.starts_with(['{', '.']) && !line.starts_with("setp");
        let line = text.split("\\n").find(own).unwrap_or_default();
        let instruction = line.split([' ', ';']).find(|word| !word.starts_with('@')).unwrap_or_default();
        // The text between the quotes of two constraints begins with an operand in parentheses.
        let operands = operands.split('"').skip(2).step_by(2).filter_map(|after| operand(after.trim_start()));
        // An empty one only hides a value from the compiler.
        let instruction = if instruction.is_empty() { "nothing" } else { instruction };
        let name: String = instruction.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
        out += &format!("ptx::{name}({});", operands.collect::<Vec<_>>().join(", "));
        rest = behind;
    }
    out + rest
}

/// The text in the parentheses that a text begins with; without the closing one where the statement's own end was cut
/// off with it.
fn operand(text: &str) -> Option<&str> {
    let inside = text.strip_prefix('(')?;
    let mut depth = 1;
    for (at, c) in inside.char_indices() {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        if depth == 0 {
            return Some(&inside[..at]);
        }
    }
    Some(inside)
}

const FLAGS: [&str; 6] = ["-std=c++17", "-O1", "-w", "-fwrapv", "-fno-strict-aliasing", "-ffp-contract=off"];

/// `cuda.hpp` beside a precompiled form of it, which g++ takes and other compilers ignore. Parsing it is a third of a
/// program's compilation. Without it programs compile all the same.
fn precompiled() -> &'static Path {
    static HEADER: OnceLock<PathBuf> = OnceLock::new();
    HEADER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulated_header");
        std::fs::create_dir_all(&folder).unwrap();
        // Another process may read them meanwhile, so they are renamed when they are whole.
        let place = |name: &str| (folder.join(format!("{}_{name}", std::process::id())), folder.join(name));
        let (text, header) = place("cuda.hpp");
        std::fs::write(&text, include_str!("cuda.hpp")).unwrap();
        std::fs::rename(text, &header).unwrap();
        if let Some(compiler) = compiler() {
            let (part, whole) = place("cuda.hpp.gch");
            let _ = Command::new(compiler).args(FLAGS).args(["-x", "c++-header", "-o"]).arg(&part).arg(&header).output();
            let _ = std::fs::rename(part, whole);
        }
        header
    })
}

/// Compiles a program; `None` without a compiler, an error if the text does not compile.
fn compile(name: &str, text: &str) -> Result<Option<PathBuf>, String> {
    let Some(compiler) = compiler() else {
        eprintln!("{name} skipped: no C++ compiler knows _Float16 and ucontext; install g++ 12 or name one in CXX");
        return Ok(None);
    };
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("emulated_{name}"));
    let source = path.with_extension("cpp");
    std::fs::write(&source, text).unwrap();
    let output = Command::new(compiler).args(FLAGS).arg("-o").arg(&path).arg(&source).output().unwrap();
    if !output.status.success() {
        return Err(format!("does not compile: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(Some(path))
}

/// A file of this folder, as C++ takes it in.
fn include(part: &str) -> String {
    if part == "cuda" {
        return format!("#include \"{}\"\n", precompiled().display());
    }
    format!("#include \"{}/tests/emulate/{part}.hpp\"\n", env!("CARGO_MANIFEST_DIR"))
}

/// A program's output for an input. An error is the message with which it ended.
fn output_of(path: &Path, input: Vec<u8>) -> Result<Vec<u8>, String> {
    let mut child = Command::new(path).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    let written = writer.join().unwrap();
    if !output.status.success() {
        return Err(format!("{} {}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    written.unwrap();
    Ok(output.stdout)
}

/// The walk of a Hopper kernel's blocks over tiles, whose edge tiles may be shifted: of the kernel's text what decides
/// it, and nothing that multiplies.
pub fn walk(name: &str, text: &str, plan: &KernelPlan, launches: &str) -> Result<Option<String>, String> {
    let (shifted_edges, parts) = (plan.shifted_edges, plan.tile.parts());
    let section = |from: &str, to: &str| {
        let (_, behind) = text.split_once(from).unwrap_or_else(|| panic!("`{from}` is not in the kernel"));
        let inside = behind.split(to).next().unwrap_or_default();
        format!("//{inside}\n")
    };
    let last = if shifted_edges { "p.edge_row = row; p.edge_column = column;" } else { "" };
    let text = [
        include("cuda"),
        section("---- types:", "\n// ---- "),
        section("---- configuration ----", "\n// ---- "),
        section("---- values that the compiler", "\n// ---- "),
        "namespace emulated { static u32 block, blocks; }\n".into(),
        "static u32 this_block() { return emulated::block; }\nstatic u32 launched_blocks() { return emulated::blocks; }\n".into(),
        "static u32 cluster_rank() { return emulated::block % (CLUSTER_M * CLUSTER_N); }\n".into(),
        section("---- parameters ----", "\n// ---- "),
        section("---- raster:", "\n// ---- "),
        section("---- mainloop for Hopper", "\n// Blocks of K."),
        format!("static void set_last(Params& p, int row, int column) {{ {last} }}\n"),
        format!("constexpr bool SHIFTED_EDGES = {shifted_edges};\nconstexpr int PARTS_OF_K = {parts};\n"),
        include("walk"),
    ];
    let Some(path) = compile(name, &without_assembly(&text.concat()))? else { return Ok(None) };
    output_of(&path, launches.into()).map(|said| Some(String::from_utf8_lossy(&said).into_owned()))
}

/// A compiled kernel; `None` without a compiler.
pub struct Program {
    path: PathBuf,
    plan: KernelPlan,
}

impl Program {
    /// Compiles the text of a plan's kernel. An error is a text that does not compile.
    pub fn of(name: &str, plan: KernelPlan, text: &str) -> Result<Option<Program>, String> {
        let text = format!("{}{}\n{}", include("cuda"), without_assembly(text), include("launch"));
        Ok(compile(name, &text)?.map(|path| Program { path, plan }))
    }

    pub fn plan(&self) -> &KernelPlan {
        &self.plan
    }

    /// The contents of every buffer except the workspace after two launches, in the order of the launch's slots.
    /// `bytes` gives the contents before, empty for an argument that is left out, and `scalar` the passed numbers. An
    /// error is the message with which the program ended.
    pub fn launch(
        &self,
        slots: &[Slot],
        shape: Shape,
        raster: i32,
        bytes: &[Vec<u8>],
        scalar: f32,
    ) -> Result<[Vec<Vec<u8>>; 2], String> {
        let plan = &self.plan;
        let seen = plan.seen(shape);
        let operands = slots.len() - plan.arguments.len();
        let name = |i: usize| &plan.all_arguments().nth(i).unwrap().name;
        let argument = |i: usize| slots.iter().position(|slot| slot.name == *name(i)).unwrap();
        let operand = |i: usize| if plan.transposed && operands >= 2 { 1 - i } else { i };
        let scale = |field: ScaleField| {
            let name = ScaleField { operand: operand(field.operand), ..field }.name();
            slots.iter().position(|slot| &*slot.name == name).unwrap()
        };
        let strides = |slot: usize| match &slots[slot].kind {
            SlotKind::Memory { dtype, outer, inner, .. } => {
                let ld = inner.next_multiple_of(dtype.run());
                (ld, ld * outer, dtype.bytes(ld), dtype.bytes(ld * outer))
            }
            SlotKind::Scalar(_) | SlotKind::Table { .. } => (0, 0, 0, 0),
        };
        let default = |slot: usize| slots[slot].need.default().filter(|_| bytes[slot].is_empty());
        let workspace = plan.workspace(shape);
        let (mut block, mut addresses) = (vec![0u8; plan.params.size], Vec::new());
        for field in &plan.params.fields {
            let mut put = |bytes: &[u8]| block[field.offset..field.offset + bytes.len()].copy_from_slice(bytes);
            let mut address = |buffer: usize, at: usize| addresses.extend([field.offset, buffer, at]);
            match field.value {
                FieldValue::M => put(&(seen.m as u32).to_le_bytes()),
                FieldValue::N => put(&(seen.n as u32).to_le_bytes()),
                FieldValue::K => put(&(seen.k as u32).to_le_bytes()),
                FieldValue::Batch => put(&(seen.batch as u32).to_le_bytes()),
                FieldValue::Raster => put(&raster.to_le_bytes()),
                FieldValue::Origin(_) => put(&0u32.to_le_bytes()),
                FieldValue::OperandPointer(i) => address(operand(i), 0),
                FieldValue::OperandLd(i) => put(&(strides(operand(i)).0 as u64).to_le_bytes()),
                FieldValue::OperandBatchStride(i) => put(&(strides(operand(i)).1 as u64).to_le_bytes()),
                FieldValue::ScalePointer(field) => address(scale(field), 0),
                FieldValue::ScaleLd(field) => put(&(strides(scale(field)).0 as u64).to_le_bytes()),
                FieldValue::ScaleBatchStride(field) => put(&(strides(scale(field)).1 as u64).to_le_bytes()),
                FieldValue::Patch(number) => {
                    let patches = plan.operation.patches().expect("a convolution or a gradient of one");
                    let value = number.value(&patches, plan.operation.dtype().size(), seen).to_le_bytes();
                    put(if field.field_type == FieldType::Long { &value } else { &value[..4] });
                }
                // A null pointer, which the block holds already.
                FieldValue::Attention(number) => {
                    let attention = plan.operation.attention().unwrap();
                    put(&(number.value(&attention, shape, plan.tile.bm) as u32).to_le_bytes());
                }
                FieldValue::ScoreScale => put(&plan.operation.attention().unwrap().scale().to_le_bytes()),
                FieldValue::KeyPointer => address(2, 0),
                FieldValue::KeyLd => put(&(strides(2).0 as u64).to_le_bytes()),
                FieldValue::KeyBatchStride => put(&(strides(2).1 as u64).to_le_bytes()),
                FieldValue::Pointer(i) if default(argument(i)).is_some() => {}
                FieldValue::Pointer(i) => address(argument(i), 0),
                FieldValue::Ld(i) => put(&(strides(argument(i)).0 as u64).to_le_bytes()),
                FieldValue::BatchStride(i) => put(&(strides(argument(i)).1 as u64).to_le_bytes()),
                FieldValue::Wide(i) => {
                    let (_, _, ld, batch) = strides(argument(i));
                    let needs = plan.wide_access_to(i);
                    put(&u32::from(ld.is_multiple_of(needs) && batch.is_multiple_of(needs)).to_le_bytes());
                }
                FieldValue::Length(i) => {
                    let (SlotKind::Table { dtype, .. }, len) = (&slots[argument(i)].kind, bytes[argument(i)].len()) else {
                        panic!("only tables have a length")
                    };
                    put(&(dtype.elements(len) as u64).to_le_bytes());
                }
                FieldValue::Scalar(_) if field.field_type == FieldType::Double => put(&f64::from(scalar).to_le_bytes()),
                FieldValue::Scalar(_) => put(&scalar.to_le_bytes()),
                FieldValue::Partials(i) => address(slots.len(), workspace.partials[i]),
                FieldValue::Arrivals(i) => address(slots.len(), workspace.arrivals[i]),
                other => panic!("no kernel that is emulated asks for {other}"),
            }
        }
        let grid = plan.grid(shape).unwrap();
        let workspace = vec![0u8; workspace.bytes];
        let buffers: Vec<&Vec<u8>> = bytes.iter().chain([&workspace]).collect();
        let mut numbers: Vec<usize> = vec![plan.params.size];
        numbers.extend(grid.map(|blocks| blocks as usize));
        numbers.extend([plan.shared_memory(), buffers.len()]);
        numbers.extend(buffers.iter().map(|buffer| buffer.len()));
        numbers.push(addresses.len() / 3);
        numbers.extend(addresses);
        let output = output_of(&self.path, launches(&numbers, &block, &buffers))
            .map_err(|fault| format!("{shape}, raster {raster}: {fault}"))?;
        Ok(each_launch(&output, &buffers).map(|mut taken| {
            taken.truncate(slots.len());
            taken
        }))
    }
}

/// What a program reads: numbers, the parameter block, and the buffers.
fn launches(numbers: &[usize], block: &[u8], buffers: &[&Vec<u8>]) -> Vec<u8> {
    let mut input: Vec<u8> = numbers.iter().flat_map(|number| (*number as u64).to_le_bytes()).collect();
    input.extend(block);
    input.extend(buffers.iter().flat_map(|buffer| buffer.iter()));
    input
}

/// The buffers after each of the two launches.
fn each_launch(output: &[u8], buffers: &[&Vec<u8>]) -> [Vec<Vec<u8>>; 2] {
    let mut rest = output;
    [0, 1].map(|_| {
        let mut taken = Vec::new();
        for buffer in buffers {
            let (head, tail) = rest.split_at(buffer.len());
            taken.push(head.to_vec());
            rest = tail;
        }
        taken
    })
}

/// The kernel that copies operands, with a parameter block that is written field by field.
pub struct Copying {
    text: String,
    grid: [u64; 3],
    block: Vec<u8>,
    addresses: Vec<usize>,
}

impl Copying {
    pub fn new(text: &str, grid: [u64; 3]) -> Copying {
        Copying { text: text.to_owned(), grid, block: Vec::new(), addresses: Vec::new() }
    }

    /// Zeros.
    pub fn skip(&mut self, bytes: usize) -> &mut Self {
        self.block.resize(self.block.len() + bytes, 0);
        self
    }

    /// The address of a buffer.
    pub fn address(&mut self, buffer: usize) -> &mut Self {
        self.addresses.extend([self.block.len(), buffer, 0]);
        self.skip(8)
    }

    pub fn long(&mut self, x: usize) -> &mut Self {
        self.block.extend((x as u64).to_le_bytes());
        self
    }

    pub fn int(&mut self, x: usize) -> &mut Self {
        self.block.extend((x as u32).to_le_bytes());
        self
    }

    /// The buffers after each of two launches; `None` without a compiler.
    pub fn run(&self, name: &str, buffers: &[Vec<u8>]) -> Result<Option<[Vec<Vec<u8>>; 2]>, String> {
        let entry = "#define postlude_kernel postlude_repack\n";
        let text = format!("{}{}\n{entry}{}", include("cuda"), without_assembly(&self.text), include("launch"));
        let Some(path) = compile(name, &text)? else { return Ok(None) };
        // The last buffer is what would be the workspace.
        let workspace = Vec::new();
        let buffers: Vec<&Vec<u8>> = buffers.iter().chain([&workspace]).collect();
        let mut numbers = vec![self.block.len()];
        numbers.extend(self.grid.map(|blocks| blocks as usize));
        numbers.extend([0, buffers.len()]);
        numbers.extend(buffers.iter().map(|buffer| buffer.len()));
        numbers.push(self.addresses.len() / 3);
        numbers.extend(&self.addresses);
        let output = output_of(&path, launches(&numbers, &self.block, &buffers))?;
        Ok(Some(each_launch(&output, &buffers)))
    }
}
