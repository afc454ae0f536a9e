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
    let count = |number: usize| arg(number).parse::<usize>().unwrap();
    let (call, done, begins, reports) = (count(1), count(10), count(13), &args[14..]);
    let (pairs, known) = (2 * count(12), done + begins);
    if call < 2 || !arg(8).is_empty() || !arg(9).is_empty() || reports.len() != 2 * known + pairs {
        return None;
    }
    let or_want = |number: usize| if arg(number).is_empty() { arg(5) } else { arg(number) };
    let plan = format!("{} {} {begins} {}", or_want(6), or_want(7), arg(14));
    let plan = if arg(6).is_empty() && begins == 0 { "" } else { &plan };
    let words = [arg(1), &format!("{}\n", call - 1), &format!("{}{}", arg(3), arg(2)), arg(3), arg(4), arg(5)];
    let words = words.into_iter().chain([plan, arg(10), arg(11)]).map(str::to_owned);
    let begun = 2 * done + pairs;
    let ids = [&reports[..done], &reports[begun..begun + begins]].concat();
    let fences = [&reports[done..2 * done], &reports[begun + begins..]].concat();
    let tokens = fences.iter().map(|fence| format!("{}:{fence}", arg(3)));
    Some(words.chain(ids).chain(tokens).chain(reports[2 * done..begun].to_vec()).collect())
}

/// How many jobs each of these calls lets begin before they have a slot. Calls without such a job are left out.
pub fn early_begins(settles: &Tap) -> Vec<usize> {
    settles.requests().iter().map(|request| early_begins_of(request)).filter(|jobs| *jobs > 0).collect()
}

/// How many jobs this call of `settle` or `settle_plain` lets begin before they have a slot.
pub fn early_begins_of(request: &[u8]) -> usize {
    let words = words(request);
    // The command, the script and the number of keys come first.
    let keys: usize = words[2].parse().unwrap();
    let arg = |number: usize| words[2 + keys + number].parse::<usize>().unwrap_or(0);
    // `begin` without `with_slot`, and `begins` without `begin_slots`; in `settle_plain` they are one argument.
    let plan: Vec<usize> = words[2 + keys + 7].split(' ').filter_map(|word| word.parse().ok()).collect();
    match plan[..] {
        [begin, with_slot, begins, begin_slots] => begin - with_slot + begins - begin_slots,
        _ if words[2 + keys + 2].contains('\n') => 0,
        _ => arg(6) - arg(7) + arg(13) - arg(14),
    }
}
