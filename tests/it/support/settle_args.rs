//! The arguments of `settle`: tests write them in short, and read what a worker asks for.

use super::resp::words;
use super::tap::Tap;

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

/// The arguments of `lua/settle_plain.lua` for a call with these of `lua/settle.lua`; `None` if it needs `settle`.
pub fn plain_args(args: &[String]) -> Option<Vec<String>> {
    let arg = |number: usize| args[number - 1].as_str();
    let (call, completed, values) = (arg(1).parse::<u64>().unwrap(), arg(10), arg(12).parse::<usize>().unwrap());
    let done = completed.parse::<usize>().unwrap();
    let reports = &args[14..];
    let is_plain = [6, 7, 8, 9].iter().all(|number| arg(*number).is_empty()) && arg(13) == "0";
    if call < 2 || !is_plain || reports.len() != 2 * (done + values) {
        return None;
    }
    let words = [arg(1), &format!("{}\n", call - 1), &format!("{}{}", arg(3), arg(2)), arg(3), arg(4), arg(5)];
    let words = words.into_iter().chain([completed, arg(11)]).map(str::to_owned);
    let tokens = reports[done..2 * done].iter().map(|fence| format!("{}:{fence}", arg(3)));
    Some(words.chain(reports[..done].to_vec()).chain(tokens).chain(reports[2 * done..].to_vec()).collect())
}

/// How many jobs each of these calls lets begin before they have a slot. Calls without such a job are left out.
pub fn early_begins(settles: &Tap) -> Vec<usize> {
    let of_call = |request: Vec<u8>| {
        let words = words(&request);
        // The command, the script and the number of keys come first.
        let keys: usize = words[2].parse().unwrap();
        let arg = |number: usize| words[2 + keys + number].parse::<usize>().unwrap_or(0);
        // `begin` without `with_slot`, and `begins` without `begin_slots`.
        arg(6) - arg(7) + arg(13) - arg(14)
    };
    settles.requests().into_iter().map(of_call).filter(|jobs| *jobs > 0).collect()
}
