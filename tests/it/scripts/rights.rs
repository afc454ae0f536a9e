use std::collections::BTreeSet;

use crate::scripts::call::Task;
use crate::scripts::flow;
use crate::support::checks_rights;

#[tokio::test]
async fn a_user_with_all_rights_lacks_none_and_nothing_is_written() {
    let mut task = Task::new().await;
    assert_eq!(task.unchanged("rights", "").await, "[rights]");
}

#[tokio::test]
async fn commands_that_read_inside_a_script_are_checked_too() {
    let mut task = Task::new().await;
    if !checks_rights(&mut task.conn).await {
        return;
    }
    for command in ["lindex", "lrange", "llen", "scard", "zcard", "zrange", "zmscore", "hexists", "hmget", "exists"] {
        task.lack(command).await;
        let told = task.ok("rights", "").await;
        assert!(told.starts_with(&format!("[rights {} ", command.to_uppercase())), "{command}: {told}");
    }
}

#[tokio::test]
async fn a_script_that_would_be_refused_midway_is_refused_at_once() {
    for (script, args, commands) in [
        ("sweep", "v 1000 5 1000 0 200 auto -", "lpush hincrby hdel zadd xadd"),
        ("trim", "v Completed 60000 200", "hdel zrem xadd exists"),
        ("expire", "w 200", "hdel zrem zadd hset xadd exists lindex lrange ltrim hexists zmscore hincrby"),
    ] {
        let mut task = Task::new().await;
        if !checks_rights(&mut task.conn).await {
            return;
        }
        task.write("meta epoch=5, interval=1000, ask=1000, maxCount=1, maxAgeCompleted=1000; runs w: held=7").await;
        task.write("snapshot; payload old=1; completed old=5; waits late; expiresAt late=5; expires late=5").await;
        let before = task.exact().await;
        for command in commands.split(' ') {
            task.lack(command).await;
            let refused = task.call(script, args).await.unwrap_err();
            // The server itself refuses a script that reads first.
            assert!(is_denied(&refused), "{script} without {command}: {refused}");
            assert_eq!(task.exact().await, before, "{script} without {command}");
        }
        task.lack("shutdown").await;
        task.ok(script, args).await;
        assert_ne!(task.exact().await, before, "{script}");
    }
}

/// Redis 8.0.2 refuses to check a call with too many or too few words.
#[tokio::test]
async fn rights_are_checked_for_calls_that_the_server_would_run() {
    let mut task = Task::new().await;
    let (mut checked, mut words) = (BTreeSet::new(), std::collections::BTreeMap::new());
    for script in
        ["sweep", "trim", "expire", "run_now", "retry", "cancel", "remove", "mend", "dispatch_unique", "flow_advance"]
    {
        let source = task.script(script).source;
        let lists = source.split("must_be_allowed_all('").skip(1).filter_map(|rest| rest.split('\'').next());
        checked.extend(lists.flat_map(|list| list.split(' ').map(str::to_owned)));
        let table = source.split("local WORDS = {").nth(1).and_then(|rest| rest.split('}').next()).unwrap();
        words.extend(table.split(',').map(|entry| {
            let (name, count) = entry.split_once('=').unwrap();
            (name.trim().to_owned(), count.trim().parse::<i64>().unwrap())
        }));
    }
    assert!(checked.len() > 15, "{checked:?}");
    for command in checked {
        let mut info = redis::cmd("COMMAND");
        let told: Vec<redis::Value> = info.arg("INFO").arg(&command).query_async(&mut task.conn).await.unwrap();
        let facts: Vec<redis::Value> = redis::from_redis_value(told.into_iter().next().unwrap()).unwrap();
        let arity: i64 = redis::from_redis_value(facts[1].clone()).unwrap();
        // The name and the key come first.
        let given = 2 + words.get(&command).copied().unwrap_or(3);
        assert!(given == arity || arity < 0 && given >= -arity, "{command} takes {arity}, and gets {given}");
    }
}

/// Whether a right is missing, in the words of Redis 6.2 and 7.0 or in those of later servers.
fn is_denied(refused: &redis::RedisError) -> bool {
    let text = refused.to_string();
    let words = ["can't run this command", "ACL failure in script"];
    crate::scripts::call::code_of(refused) == "NOPERM" || words.iter().any(|words| text.contains(words))
}

/// The commands that a script may run.
fn commands_of(source: &str) -> BTreeSet<String> {
    let calls = source.split("call('").skip(1).filter_map(|rest| rest.split('\'').next());
    // `back_to_wait` takes the command that puts jobs back as an argument.
    let puts = ["LPUSH", "RPUSH"].into_iter().filter(|put| source.contains(&format!("back_to_wait('{put}'")));
    calls.filter(|name| !name.is_empty()).chain(puts).map(str::to_lowercase).collect()
}

#[tokio::test]
async fn an_action_is_done_whole_or_refused_before_the_first_write() {
    for (script, args) in [
        ("run_now", "ada later -"),
        ("retry", "ada 0 failed - ended -"),
        ("cancel", "why channel ada later - waits -"),
        ("remove", "ada waits - later - failed - ended -"),
        ("mend", "ada 9999999999999 lost 0 unplaced later 0 two_places"),
    ] {
        let mut refused = 0;
        let commands = commands_of(Task::new().await.script(script).source);
        for command in &commands {
            let mut task = Task::new().await;
            if !checks_rights(&mut task.conn).await {
                return;
            }
            task.write("waits waits; payload later=1, failed=1, ended=1, lost=1").await;
            task.write("priority later=high, failed=low; delayed later=5; failed failed=5; cancelled ended=5").await;
            let before = task.exact().await;
            task.lack(command).await;
            match task.call(script, args).await {
                Ok(_) => assert_ne!(task.exact().await, before, "{script} without {command}"),
                Err(e) => {
                    refused += 1;
                    assert_eq!(task.exact().await, before, "{script} without {command}: {e}");
                }
            }
        }
        assert!(refused >= 3, "{script}: {refused} of {commands:?}");
    }
}

#[tokio::test]
async fn a_step_of_a_workflow_is_written_whole_or_not_at_all() {
    let cases = ["zadd", "zrem", "hset", "hdel"].into_iter().flat_map(|lacked| [(lacked, false), (lacked, true)]);
    for (lacked, target) in cases {
        let mut task = Task::running_flow(&flow::line()).await;
        // The jobs come first, and HSET is the one command that cannot be tried without a change.
        if lacked == "hset" && target && !checks_rights(&mut task.conn).await {
            continue;
        }
        task.write("t:meta wire=1").await;
        let before = task.exact().await;
        task.lack(lacked).await;
        let refused = match target {
            true => task.call_to("flow_advance", "a 0 1 c 7", 1).await.unwrap_err(),
            false => task.call("flow_advance", "a 0 1 c 7").await.unwrap_err(),
        };
        assert!(is_denied(&refused), "{lacked} {target}: {refused}");
        assert_eq!(task.exact().await, before, "without {lacked}, target {target}");
    }
}
