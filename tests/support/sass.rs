//! Machine code of Hopper kernels: the assembler's version of the loop over products.

use object::read::elf::ElfFile64;
use object::{Object, ObjectSection};

/// Opcodes, the low twelve bits of an instruction: a warpgroup's product of 16 bits or tf32, of integers and of floating-point
/// numbers of eight bits, and one of tf32 with A in registers; a vector register copied into a uniform one.
const PRODUCTS: [u16; 4] = [0x9f0, 0x9f1, 0x9f3, 0xdf0];
const R2UR: u16 = 0x2ca;

/// The number of registers that are copied into uniform ones between the products of an `sm_90a` kernel, where every
/// product waits for them. It is zero if the assembler sees that warps stay uniform through the loop over tiles.
/// `None`, if the code has fewer than two products, or another form.
pub fn copies_between_products(cubin: &[u8]) -> Option<usize> {
    let file: ElfFile64 = ElfFile64::parse(cubin).ok()?;
    let text = file.sections().find(|section| section.name().is_ok_and(|name| name.starts_with(".text.")))?;
    let code = text.data().ok()?;
    let opcodes: Vec<u16> = code.chunks_exact(16).map(|word| u16::from_le_bytes([word[0], word[1]]) & 0xfff).collect();
    let mut products = opcodes.iter().enumerate().filter(|(_, opcode)| PRODUCTS.contains(opcode)).map(|(at, _)| at);
    let (first, last) = (products.next()?, products.next_back()?);
    Some(opcodes[first..last].iter().filter(|opcode| **opcode == R2UR).count())
}

/// Bytes of machine code in a binary: the kernel and its called functions.
pub fn code_bytes(cubin: &[u8]) -> Option<usize> {
    let file: ElfFile64 = ElfFile64::parse(cubin).ok()?;
    let text = file.sections().filter(|section| section.name().is_ok_and(|name| name.starts_with(".text.")));
    Some(text.map(|section| section.size() as usize).sum())
}

/// A digest of the instructions of a binary, whatever its functions are called. It is the same for programs of one toolchain.
pub fn digest(cubin: &[u8]) -> Option<u64> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let file: ElfFile64 = ElfFile64::parse(cubin).ok()?;
    let text = file.sections().filter(|section| section.name().is_ok_and(|name| name.starts_with(".text.")));
    let mut functions: Vec<&[u8]> = text.map(|section| section.data().ok()).collect::<Option<_>>()?;
    functions.sort_unstable();
    let mut hasher = DefaultHasher::new();
    functions.hash(&mut hasher);
    Some(hasher.finish())
}
