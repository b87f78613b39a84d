//! Quotas: how many clusters each node of a level may still get.

/// Divides `k` among nodes in proportion to their shares, by largest remainders. Every node gets at least 1
/// and at most its cap. The sum is below `k` only if all caps are reached.
pub(super) fn quotas(shares: &[f64], caps: &[usize], k: usize) -> Vec<usize> {
    let mut quotas: Vec<usize> = caps.iter().map(|&cap| cap.min(1)).collect();
    let mut left = k.saturating_sub(quotas.iter().sum());
    while left > 0 {
        let open: Vec<usize> = (0..caps.len()).filter(|&j| quotas[j] < caps[j]).collect();
        let total: f64 = open.iter().map(|&j| shares[j]).sum();
        if open.is_empty() {
            break;
        }
        let part = |j: usize| {
            let wanted =
                if total > 0.0 { left as f64 * (shares[j] / total) } else { left as f64 / open.len() as f64 };
            wanted.min((caps[j] - quotas[j]) as f64)
        };
        let mut given = 0;
        let mut remainders: Vec<(f64, usize)> = Vec::with_capacity(open.len());
        let mut whole = Vec::with_capacity(open.len());
        for &j in &open {
            let part = part(j);
            given += part as usize;
            whole.push(part as usize);
            remainders.push((part - part.floor(), j));
        }
        open.iter().zip(whole).for_each(|(&j, whole)| quotas[j] += whole);
        left -= given.min(left);
        if given == 0 {
            // Less than one each: the largest shares get one.
            remainders.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            for &(_, j) in remainders.iter().take(left) {
                quotas[j] += 1;
                left -= 1;
            }
        }
    }
    quotas
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quotas_follow_the_shares() {
        assert_eq!(quotas(&[1.0, 3.0, 0.0], &[50, 50, 1], 11), [3, 7, 1]);
        // What a node cannot use goes to the others.
        assert_eq!(quotas(&[100.0, 1.0, 1.0], &[2, 9, 9], 12), [2, 5, 5]);
        assert_eq!(quotas(&[1.0, 1.0], &[2, 1], 9), [2, 1]);
        assert_eq!(quotas(&[0.0, 0.0], &[1, 0], 9), [1, 0]);
    }

    proptest! {
        #[test]
        fn quotas_are_used_up_within_caps(
            nodes in prop::collection::vec((0.0f64..1e9, 0usize..40), 1..30), more in 0usize..500,
        ) {
            let (shares, caps): (Vec<f64>, Vec<usize>) = nodes.into_iter().unzip();
            let room: usize = caps.iter().sum();
            let k = caps.iter().filter(|&&cap| cap > 0).count() + more;
            let quotas = quotas(&shares, &caps, k);
            prop_assert_eq!(quotas.iter().sum::<usize>(), k.min(room));
            for (&quota, &cap) in quotas.iter().zip(&caps) {
                prop_assert!(quota <= cap && quota >= cap.min(1));
            }
        }
    }
}
