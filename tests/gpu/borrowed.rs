//! Memory of other libraries: addresses with extents and strides.

use crate::rig::gpu;
use postlude::args::MemoryLayout;
use postlude::build::recipes;
use postlude::cudarc::driver::DevicePtr;
use postlude::prelude::*;

#[test]
fn addresses_with_strides_are_arguments() {
    let Some(device) = gpu() else { return };
    let stream = &device.context().default_stream();
    // B lies transposed, and rows of A and D are longer than their elements.
    let (m, n, k, pitch) = (33, 40, 24, 48);
    let number = |i: usize| (i % 7) as f32 - 3.0;
    let upload = |elements: usize| stream.clone_htod(&(0..elements).map(number).collect::<Vec<f32>>()).expect("memory");
    let (a, b, d) = (upload(m * pitch), upload(n * k), upload(m * pitch));
    let layout = |extents: [usize; 2], strides: [isize; 2]| MemoryLayout::new(&extents, &strides).expect("a layout");
    let address = |slice: &postlude::cudarc::driver::CudaSlice<f32>| slice.device_ptr(stream).0;
    let (rows, columns) = (pitch as isize, k as isize);
    let gemm = Gemm::new(F32, TN, &recipes::identity(F32).expect("an epilogue"));
    let run = |extents: [usize; 2]| -> Result<(), postlude::Error> {
        // SAFETY: the slices live, are that long, and this stream alone uses them.
        let (a, b, d) = unsafe {
            (
                postlude::Tensor::from_raw(device.context(), address(&a), F32, layout([m, k], [rows, 1])),
                postlude::Tensor::from_raw(device.context(), address(&b), F32, layout([k, n], [1, columns])),
                postlude::Tensor::from_raw_mut(device.context(), address(&d), F32, layout(extents, [rows, 1])),
            )
        };
        let mut args = DeviceArgs::new().input("a", a).input("b", b).output("d", d);
        gemm.plan_for(device, Shape::new(m, n, k), stream, &mut args)?.execute(stream, &mut args)
    };
    let refused = run([m, n + 1]).expect_err("one column too many").to_string();
    assert!(refused.starts_with("argument `d`: has extents [33, 41]"), "{refused}");
    run([m, n]).expect("it runs");
    let got = stream.clone_dtoh(&d).expect("the result");
    for (row, column) in [(0, 0), (m - 1, n - 1), (17, 5)] {
        let exact: f32 = (0..k).map(|i| number(row * pitch + i) * number(column * k + i)).sum();
        assert_eq!(got[row * pitch + column], exact, "{row}, {column}");
    }
    assert_eq!(got[n], number(n), "nothing is written between rows");
}
