//! The arguments of `settle`, which tests write in short.

/// The arguments of `lua/settle.lua` for these: call and sequence (`7/2`), worker, ask, `want`, `completed`, `values`,
/// then the reports. `want` is the jobs, or `jobs begin with_slot`, then perhaps `hooks`, then perhaps `most N`;
/// `completed` is a number, then the run times; `values` a number, then perhaps those of `begins` and `begin_slots`.
pub fn settle_args<S: AsRef<str>>(short: &[S]) -> Vec<String> {
    let short: Vec<&str> = short.iter().map(AsRef::as_ref).collect();
    let [call, worker, ask, want, completed, counts, reports @ ..] = &short[..] else { panic!("too few: {short:?}") };
    let (number, sequence) = call.find('/').map_or((*call, ""), |at| call.split_at(at));
    let (want, most) = want.split_once(" most ").unwrap_or((want, ""));
    let (want, hooks) = want.strip_suffix(" hooks").map_or((want, ""), |want| (want, "1"));
    let mut want = want.split(' ');
    let mut word = || want.next().unwrap_or("");
    let (jobs, begin, with_slot) = (word(), word(), word());
    let (completed, ran) = completed.split_once(' ').unwrap_or((completed, ""));
    let mut counts = counts.split(' ');
    let values = counts.next().unwrap();
    let begins = counts.next().unwrap_or("0");
    let begin_slots = counts.next().unwrap_or(begins);
    let words = [
        number,
        sequence,
        worker,
        ask,
        jobs,
        begin,
        with_slot,
        hooks,
        most,
        completed,
        ran,
        values,
        begins,
        begin_slots,
    ];
    words.iter().chain(reports).map(ToString::to_string).collect()
}
