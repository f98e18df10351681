//! The parts of the benchmarks that need no GPU: cases, flags, statistics.
#![allow(dead_code, reason = "the benchmark uses what the tests do not")]

#[path = "../benches/gemm/case.rs"]
mod case;
#[path = "../benches/gemm/options.rs"]
mod options;
#[path = "../benches/gemm/sample.rs"]
mod sample;
#[path = "../benches/gemm/statistics.rs"]
mod statistics;

mod test_case {
    use crate::case::*;
    use postlude::prelude::*;

    fn cases(group: Group) -> Vec<Case> {
        Case::list(group, None, None, &group.shapes())
    }

    #[test]
    fn every_group_has_cases_and_fits_into_one_sitting() {
        for group in Group::ALL {
            let seconds: f64 = cases(group).iter().map(|case| case.seconds(group.slices(), None)).sum();
            let limit = match group {
                Group::Survey => 400.0,
                Group::Large | Group::Training => 330.0,
                _ => 170.0,
            };
            assert!(seconds > 0.0 && seconds < limit, "{}: {seconds} s", group.word());
        }
    }

    #[test]
    fn weights_of_decode_shapes_come_from_memory() {
        for case in cases(Group::Decode) {
            assert!(case.shape.m <= 128 && case.bytes(Fused::Identity) > 32 << 20);
        }
    }

    #[test]
    fn gradients_of_weights_lie_row_by_row() {
        let cases = Case::list(Group::Training, Some(&[F16]), Some(&[Fused::BiasSum, Fused::MaskSum]), &[[8, 16, 32]]);
        let titles: Vec<String> = cases.iter().map(Case::title).collect();
        assert_eq!(titles, ["training f16 NT 8x16x32 bias_sum", "training f16 TN 8x16x32 mask_sum"]);
    }

    #[test]
    fn a_tax_is_on_the_identity() {
        let shapes = [[64, 64, 64]];
        let one = Case::list(Group::Tax, None, Some(&[Fused::Heavy]), &shapes);
        assert_eq!(one[0].epilogues, [Fused::Identity, Fused::Heavy]);
        assert_eq!(cases(Group::Tax)[0].epilogues.len(), Fused::PLAIN.len());
        assert_eq!(cases(Group::Activations)[0].epilogues.len(), 1 + postlude::build::activation::ALL.len());
        assert!(Case::list(Group::Activations, None, Some(&[Fused::Heavy]), &shapes).is_empty());
    }

    #[test]
    fn only_what_a_peer_has_is_asked_of_it() {
        assert!(Case::list(Group::Large, None, Some(&[Fused::Heavy]), &[[64, 64, 64]]).is_empty());
        assert_eq!(Case::list(Group::Regions, Some(&[BF16]), None, &[[64, 64, 64]]).len(), 2);
    }

    #[test]
    fn boundaries_lie_inside_tiles() {
        for [m, ..] in Group::Regions.shapes() {
            assert!(boundary(m) < m && !boundary(m).is_multiple_of(16));
        }
    }

    #[test]
    fn bytes_count_every_matrix_once() {
        let case = &Case::list(Group::Large, None, None, &[[2, 3, 5]])[0];
        assert_eq!(case.bytes(Fused::Identity), 2 * (10 + 15 + 6));
        assert_eq!(case.bytes(Fused::Residual), 2 * (10 + 15 + 12));
        assert_eq!(case.title(), "large f16 TN 2x3x5 identity");
    }
}

mod test_options {
    use crate::case::*;
    use crate::options::*;

    fn parse(text: &str) -> Result<Options, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Options::parse(&words, |_| None)
    }

    #[test]
    fn flags_select() {
        let options = parse("--bench --group small,decode --dtype bf16 --epilogue relu --slices both --rounds 5 --shape 8x16x32")
            .expect("options");
        assert_eq!(options.groups, [Group::Small, Group::Decode]);
        assert_eq!(options.slices(Group::Decode), [Slices::Long, Slices::Short]);
        let titles: Vec<String> = options.cases().iter().map(Case::title).collect();
        assert_eq!(titles, ["small bf16 TN 8x16x32 relu", "decode bf16 TN 8x16x32 relu"]);
    }

    #[test]
    fn kernels_have_names() {
        let words = ["--kernel".into(), "5 stages, 2 ping-pong@-8+step;@16+turned; cluster 2x1-step-turned".into()];
        let options = Options::parse(&words, |_| None).expect("options");
        let named = |tile: &str, raster, lockstep, transposed| Named { tile: tile.into(), raster, lockstep, transposed };
        let expected = [
            named("5 stages, 2 ping-pong", -8, Some(true), None),
            named("", 16, None, Some(true)),
            named("cluster 2x1", 0, Some(false), Some(false)),
        ];
        assert_eq!(options.kernels, expected);
    }

    #[test]
    fn variables_stand_in() {
        let variable = |name: &str| (name == "POSTLUDE_BENCH_CONTEST").then(|| "4096x14336x".to_owned());
        let options = Options::parse(&["--bench".into()], variable).expect("options");
        assert!(options.cases().iter().all(|case| case.shape.n == 14336) && !options.cases().is_empty());
    }

    #[test]
    fn nothing_large_runs_unmeasured() {
        assert!(parse("").expect("options").cases().iter().all(|case| case.shape.m == 256));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, culprit) in [
            ("--group huge", "`huge`"),
            ("--rounds 0", "`0`"),
            ("--shape 4x4", "`4x4`"),
            ("--csv", "`--csv` needs a value"),
            ("--slices some", "`some`"),
            ("--kernel 128x192@many", "`128x192@many`"),
            ("8192", "unknown option `8192`"),
        ] {
            assert!(parse(text).expect_err(text).contains(culprit), "{text}");
        }
    }
}

mod test_statistics {
    use crate::statistics::*;

    #[test]
    fn few_values_spread_from_the_least_to_the_largest() {
        let ones = vec![1.0; 40];
        let of = |values: &[f64]| Spread::of_ratios(values, &ones[..values.len()]);
        assert_eq!(of(&[5.0, 1.0, 3.0, 2.0, 4.0]), Spread { median: 3.0, low: 1.0, high: 5.0 });
        assert_eq!(of(&[4.0, 1.0]), Spread { median: 2.5, low: 1.0, high: 4.0 });
        assert_eq!(of(&[7.0]), Spread { median: 7.0, low: 7.0, high: 7.0 });
        let many: Vec<f64> = (0..31).rev().map(f64::from).collect();
        assert_eq!(of(&many), Spread { median: 15.0, low: 3.0, high: 27.0 });
    }

    #[test]
    fn ratios_are_of_rounds() {
        // The clock halves in the second round, and the ratio stays.
        let spread = Spread::of_ratios(&[3.0, 6.0, 3.3], &[2.0, 4.0, 2.0]);
        assert_eq!(spread, Spread { median: 1.5, low: 1.5, high: 1.65 });
    }

    #[test]
    fn everybody_stands_everywhere() {
        let mut shuffle = Shuffle::new(1);
        let mut seen = [[0; 3]; 3];
        for _ in 0..3000 {
            let order = shuffle.order(3);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2]);
            order.iter().enumerate().for_each(|(place, who)| seen[place][*who] += 1);
        }
        assert!(seen.iter().flatten().all(|&count| (850..1150).contains(&count)), "{seen:?}");
    }
}
