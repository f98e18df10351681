//! Matrix products, by the reference.

use crate::args::{HostArgs, Tensor as ArgTensor};
use crate::build::Epilogue;
use crate::dtype::{DType, ValueType};
use crate::gemm::Gemm;
use crate::network::fault::Fault;
use crate::network::format::Format;
use crate::network::operator::Call;
use crate::network::tensor::{Tensor, broadcast_strides, dot, for_each_index};
use crate::network::types::broadcast_shapes;
use crate::problem::{Layout, Shape};

/// The product of two matrices without a format of kernels, in whole numbers.
fn on_integers(a: &Tensor, b: &Tensor, [m, n, k]: [usize; 3]) -> Result<Tensor, Fault> {
    let (x, y) = (a.integers(), b.integers());
    let mut out = vec![0i128; m * n];
    for (row, sums) in out.chunks_mut(n.max(1)).enumerate().take(m) {
        for inner in 0..k {
            let factor = x[row * k + inner];
            sums.iter_mut().zip(&y[inner * n..]).for_each(|(sum, y)| *sum += factor * y);
        }
    }
    Tensor::of_integers(a.format(), &[m, n], &out)
}

/// The product of an M x K and a K x N matrix of one format, rounded to `to`.
///
/// # Errors
/// If K differs, or the formats have no product.
pub(crate) fn matrices(a: &Tensor, b: &Tensor, to: Format) -> Result<Tensor, Fault> {
    let (&[m, k], &[rows, n]) = (a.shape(), b.shape()) else {
        return Err(Fault::Shape(format!("{a} and {b} are not two matrices")));
    };
    if k != rows || a.format() != b.format() {
        return Err(Fault::Shape(format!("{a} times {b}: K and format have to agree")));
    }
    if a.is_empty() || b.is_empty() {
        return Tensor::blank(to, &[m, n]);
    }
    let (Some(dtype), Some(stored)) = (a.format().dtype(), to.dtype()) else { return on_integers(a, b, [m, n, k]) };
    let epilogue = Epilogue::build(|e| match dtype.value_type() {
        ValueType::F64 => e.store("d", e.acc_f64(), stored),
        ValueType::I32 => e.store("d", e.acc_i32(), stored),
        _ => e.store("d", e.acc(), stored),
    });
    let epilogue = epilogue.map_err(|_| Fault::format("a product", a.format()))?;
    let mut out = Tensor::blank(to, &[m, n])?;
    let args = HostArgs::new()
        .input("a", ArgTensor::of_bytes(dtype, a.bytes()))
        .input("b", ArgTensor::of_bytes(dtype, b.bytes()))
        .output("d", ArgTensor::of_bytes_mut(stored, out.bytes_mut()));
    let gemm = Gemm::new(dtype, Layout::TT, &epilogue);
    gemm.reference(Shape::new(m, n, k), args).map_err(|errors| Fault::Value(errors.to_string()))?;
    Ok(out)
}

/// A part of a tensor's elements that lie side by side.
fn entry(tensor: &Tensor, at: usize, shape: [usize; 2]) -> Result<Tensor, Fault> {
    let size = shape[0] * shape[1] * tensor.format().size();
    let bytes = tensor.bytes().get(at * size..(at + 1) * size).unwrap_or_default();
    Tensor::new(tensor.format(), &shape, bytes.to_vec())
}

/// The product of two tensors as NumPy's `matmul`, rounded to `to`.
///
/// # Errors
/// If the shapes do not fit.
pub(crate) fn numpy(a: &Tensor, b: &Tensor, to: Format) -> Result<Tensor, Fault> {
    if a.rank() == 0 || b.rank() == 0 {
        return Err(Fault::Shape(format!("{a} times {b}: a product takes tensors of one axis or more")));
    }
    let whole_a = if a.rank() == 1 { a.reshaped(&[1, a.len()])? } else { a.clone() };
    let whole_b = if b.rank() == 1 { b.reshaped(&[b.len(), 1])? } else { b.clone() };
    let split = |t: &Tensor| {
        let (batch, matrix) = t.shape().split_at(t.rank() - 2);
        (batch.to_vec(), [matrix[0], matrix[1]])
    };
    let ((batch_a, [m, k]), (batch_b, [rows, n])) = (split(&whole_a), split(&whole_b));
    if k != rows {
        return Err(Fault::Shape(format!("{a} times {b}: K is {k} and {rows}")));
    }
    let batch = broadcast_shapes([batch_a.as_slice(), batch_b.as_slice()])?;
    let (along_a, along_b) = (broadcast_strides(&batch_a, &batch), broadcast_strides(&batch_b, &batch));
    let mut bytes = Vec::new();
    let mut fault = None;
    for_each_index(&batch, |index| {
        let product = || {
            let left = entry(&whole_a, dot(index, &along_a), [m, k])?;
            matrices(&left, &entry(&whole_b, dot(index, &along_b), [k, n])?, to)
        };
        match product() {
            Ok(product) => bytes.extend_from_slice(product.bytes()),
            Err(error) => fault = fault.take().or(Some(error)),
        }
    });
    if let Some(fault) = fault {
        return Err(fault);
    }
    let mut shape = batch;
    shape.extend((a.rank() > 1).then_some(m));
    shape.extend((b.rank() > 1).then_some(n));
    Tensor::new(to, &shape, bytes)
}

/// `MatMul`.
pub(crate) fn matmul(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    Ok(vec![numpy(a, b, a.format())?])
}

/// A matrix with its axes exchanged.
///
/// # Errors
/// If it is not a matrix.
pub(crate) fn transposed(x: &Tensor) -> Result<Tensor, Fault> {
    let &[rows, columns] = x.shape() else { return Err(Fault::Shape(format!("{x} is not a matrix"))) };
    x.gathered(&[columns, rows], None, |index| Some(index[1] * columns + index[0]))
}

/// `Gemm`: alpha A' B' + beta C.
pub(crate) fn gemm(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let turn = |name: &str, x: &Tensor| if call.attributes.flag(name) { transposed(x) } else { Ok(x.clone()) };
    let (a, b) = (turn("transA", call.input(0)?)?, turn("transB", call.input(1)?)?);
    let (alpha, beta) = (call.attributes.float_or("alpha", 1.0), call.attributes.float_or("beta", 1.0));
    let format = a.format();
    if alpha == 1.0 && call.get(2).is_none() {
        return Ok(vec![matrices(&a, &b, format)?]);
    }
    // Rounded once, behind the sum.
    let wide = match format {
        Format::F16 | Format::BF16 => Format::F32,
        other => other,
    };
    let product = matrices(&a, &b, wide)?;
    let mut numbers: Vec<f64> = product.numbers().into_iter().map(|x| x * alpha).collect();
    if let Some(c) = call.get(2) {
        broadcast_shapes([product.shape(), c.shape()])?;
        let c = c.broadcast(product.shape())?.numbers();
        numbers.iter_mut().zip(c).for_each(|(x, c)| *x += beta * c);
    }
    Ok(vec![Tensor::of_numbers(format, product.shape(), &numbers)?])
}

/// The elements less a zero point, in `i32`: one for all, or one along `axis`.
pub(crate) fn centred(x: &Tensor, zero: Option<&Tensor>, axis: usize) -> Result<Tensor, Fault> {
    let elements = x.integers();
    let Some(zero) = zero else { return Tensor::of_integers(DType::I32, x.shape(), &elements) };
    let zeros = zero.integers();
    let inner: usize = x.shape().get(axis + 1..).unwrap_or_default().iter().product();
    let extent = x.shape().get(axis).copied().unwrap_or(1).max(1);
    let fits = zeros.len() == 1 || zeros.len() == extent;
    if !fits || zeros.is_empty() {
        return Err(Fault::Shape(format!("zero points {zero} lie along no axis of {x}")));
    }
    let at = |i: usize| if zeros.len() == 1 { zeros[0] } else { zeros[i / inner.max(1) % extent] };
    let moved: Vec<i128> = elements.iter().enumerate().map(|(i, x)| x - at(i)).collect();
    Tensor::of_integers(DType::I32, x.shape(), &moved)
}

/// `MatMulInteger`: the product less zero points, in `i32`.
pub(crate) fn matmul_integer(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let a = centred(a, call.get(2), a.rank().saturating_sub(2))?;
    let b = centred(b, call.get(3), b.rank().saturating_sub(1))?;
    Ok(vec![numpy(&a, &b, Format::I32)?])
}

/// Two operands of eight bits as numbers in which sums of their products are exact, or as kernels sum fp8 numbers.
///
/// # Errors
/// If they are of other formats.
pub(crate) fn widened(a: &Tensor, b: &Tensor) -> Result<[Tensor; 2], Fault> {
    let of = |x: &Tensor| match x.format().is_float() {
        true => super::convert::as_format(x, Format::F32, true),
        false => centred(x, None, 0),
    };
    Ok([of(a)?, of(b)?])
}

/// `WideMatMul`.
pub(crate) fn wide_matmul(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let [a, b] = widened(call.input(0)?, call.input(1)?)?;
    let turn = |name: &str, x: Tensor| if call.attributes.flag(name) { transposed(&x) } else { Ok(x) };
    let (a, b) = (turn("transA", a)?, turn("transB", b)?);
    Ok(vec![numpy(&a, &b, a.format())?])
}

/// Sums of products of integers, quantised again: the nearest of `sum * scale / y_scale + zero point`. A scale has one
/// number, or one for each element along `axis`.
pub(crate) fn requantised(
    sums: &Tensor,
    [a_scale, b_scale, y_scale]: [&Tensor; 3],
    zero: &Tensor,
    axis: usize,
) -> Result<Tensor, Fault> {
    let [_, extent, inner] = super::around(sums.shape(), axis.min(sums.rank().saturating_sub(1)));
    let (a, b, y, z) = (a_scale.numbers(), b_scale.numbers(), y_scale.numbers(), zero.numbers());
    if [&a, &b, &y, &z].iter().any(|list| list.len() != 1 && list.len() != extent) {
        return Err(Fault::Unsupported("a scale that is neither one number nor one for each channel".to_owned()));
    }
    let of = |list: &[f64], i: usize| list[if list.len() == 1 { 0 } else { i / inner.max(1) % extent }];
    let each = |(i, sum): (usize, f64)| (sum * of(&a, i) * of(&b, i) / of(&y, i)).round_ties_even() + of(&z, i);
    let numbers: Vec<f64> = sums.numbers().into_iter().enumerate().map(each).collect();
    Tensor::of_numbers(zero.format(), sums.shape(), &numbers)
}

/// `QLinearMatMul`.
pub(crate) fn qlinear_matmul(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (a, b) = (call.input(0)?, call.input(3)?);
    let centred_a = centred(a, call.get(2), a.rank().saturating_sub(2))?;
    let centred_b = centred(b, call.get(5), b.rank().saturating_sub(1))?;
    let sums = numpy(&centred_a, &centred_b, Format::I32)?;
    let axis = sums.rank().saturating_sub(1);
    let scales = [call.input(1)?, call.input(4)?, call.input(6)?];
    Ok(vec![requantised(&sums, scales, call.input(7)?, axis)?])
}

/// `Einsum`: sums of products over indices that letters name.
pub(crate) fn einsum(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let equation: String = call.attributes.text_or("equation", "").chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = match equation.split_once("->") {
        Some((left, right)) => (left.to_owned(), Some(right.to_owned())),
        None => (equation.clone(), None),
    };
    let wrong = || Fault::attribute("equation", format!("is not an equation over these inputs: `{equation}`"));
    let operands: Vec<&Tensor> = call.inputs.iter().copied().flatten().collect();
    let terms: Vec<&str> = left.split(',').collect();
    if terms.len() != operands.len() {
        return Err(wrong());
    }
    // An ellipsis is as many letters as the operand has axes left, counted from the end.
    let spelled = |term: &str, rank: usize| -> Option<Vec<char>> {
        let named = term.chars().filter(|c| *c != '.').count();
        let dots: Vec<char> = (0..rank.saturating_sub(named)).rev().filter_map(|i| char::from_digit(i as u32, 36)).collect();
        let word: String =
            if term.contains("...") { term.replace("...", &dots.iter().collect::<String>()) } else { term.to_owned() };
        let letters: Vec<char> = word.chars().collect();
        (letters.len() == rank && letters.iter().all(char::is_ascii_alphanumeric)).then_some(letters)
    };
    let mut words = Vec::new();
    for (term, operand) in terms.iter().zip(&operands) {
        words.push(spelled(term, operand.rank()).ok_or_else(wrong)?);
    }
    let mut letters: Vec<char> = words.iter().flatten().copied().collect();
    letters.sort_unstable();
    letters.dedup();
    let dots: String = letters.iter().filter(|c| c.is_ascii_digit()).rev().collect();
    let output: Vec<char> = match right {
        Some(right) => right.replace("...", &dots).chars().collect(),
        None => {
            let once = |c: &&char| words.iter().flatten().filter(|other| other == c).count() == 1;
            dots.chars().chain(letters.iter().filter(|c| !c.is_ascii_digit()).filter(once).copied()).collect()
        }
    };
    if output.iter().any(|c| !letters.contains(c)) {
        return Err(wrong());
    }
    let mut extents = vec![1usize; letters.len()];
    for (word, operand) in words.iter().zip(&operands) {
        for (letter, extent) in word.iter().zip(operand.shape()) {
            let at = letters.iter().position(|l| l == letter).unwrap_or(0);
            if extents[at] != 1 && *extent != 1 && extents[at] != *extent {
                return Err(Fault::Shape(format!("`{letter}` is {} and {extent}", extents[at])));
            }
            extents[at] = if *extent == 1 { extents[at] } else { *extent };
        }
    }
    let place = |letter: &char| letters.iter().position(|l| l == letter).unwrap_or(0);
    let summed: Vec<usize> = (0..letters.len()).filter(|at| !output.contains(&letters[*at])).collect();
    let stride_of = |word: &[char], shape: &[usize]| {
        let own = crate::network::tensor::strides(shape);
        let mut by_letter = vec![0; letters.len()];
        for (axis, letter) in word.iter().enumerate() {
            by_letter[place(letter)] += if shape[axis] == 1 { 0 } else { own[axis] };
        }
        by_letter
    };
    let steps: Vec<Vec<usize>> = words.iter().zip(&operands).map(|(word, t)| stride_of(word, t.shape())).collect();
    let numbers: Vec<Vec<f64>> = operands.iter().map(|t| t.numbers()).collect();
    let shape: Vec<usize> = output.iter().map(|l| extents[place(l)]).collect();
    let inner: Vec<usize> = summed.iter().map(|at| extents[*at]).collect();
    let format = call.input(0)?.format();
    crate::network::tensor::count(format, &shape)?;
    let mut out = Vec::new();
    let mut whole = vec![0; letters.len()];
    for_each_index(&shape, |index| {
        output.iter().zip(index).for_each(|(letter, i)| whole[place(letter)] = *i);
        let mut sum = 0.0;
        for_each_index(&inner, |index| {
            summed.iter().zip(index).for_each(|(at, i)| whole[*at] = *i);
            sum += steps.iter().zip(&numbers).map(|(steps, x)| x[dot(&whole, steps)]).product::<f64>();
        });
        out.push(sum);
    });
    Ok(vec![Tensor::of_numbers(format, &shape, &out)?])
}
