use redis::aio::ConnectionLike;

/// How often clients called one of these commands on the server, including calls inside scripts.
pub async fn calls<C: ConnectionLike>(conn: &mut C, commands: &[&str]) -> u64 {
    let info: String = redis::cmd("INFO").arg("commandstats").query_async(conn).await.unwrap();
    let of_command = |name: &&str| {
        let start = format!("cmdstat_{name}:calls=");
        let line = info.lines().find_map(|line| line.strip_prefix(start.as_str()));
        line.map_or(0, |stats| stats.split(',').next().unwrap().parse::<u64>().unwrap())
    };
    commands.iter().map(of_command).sum()
}

/// How many scripts the server has run for its clients.
pub async fn scripts_run<C: ConnectionLike>(conn: &mut C) -> u64 {
    calls(conn, &["eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"]).await
}

/// A number of the section `stats`: `total_connections_received`, `total_net_input_bytes` and others.
pub async fn stat<C: ConnectionLike>(conn: &mut C, name: &str) -> u64 {
    let info: redis::InfoDict = redis::cmd("INFO").arg("stats").query_async(conn).await.unwrap();
    info.get(name).unwrap_or_else(|| panic!("the server tells no {name}"))
}
