//! What an open page receives, and what it costs while no page is open.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::site::{Site, until};

/// A page that subscribes: its response, line by line.
struct Stream(BufReader<TcpStream>);

impl Stream {
    fn open(site: &Site) -> Stream {
        let address = site.origin().trim_start_matches("http://").to_owned();
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        write!(stream, "GET /live HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
        Stream(BufReader::new(stream))
    }

    fn status(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.split(' ').nth(1).unwrap().to_owned()
    }

    /// The next change for which this is true.
    fn until(&mut self, so: impl Fn(&Value) -> bool) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ended");
            let Some(text) = line.trim_end().strip_prefix("data: ") else { continue };
            let change: Value = serde_json::from_str(text).unwrap();
            if so(&change) {
                return change;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_page_receives_changes_and_reports_a_lost_server() {
    let mut site = Site::new().await;
    let mut stream = Stream::open(&site);
    stream.until(|change| change["all"] == true);
    site.export.dispatch("x".into()).await.unwrap();
    let change = stream.until(|change| change["tasks"] != Value::Array(Vec::new()));
    assert_eq!((&change["tasks"][0], &change["all"]), (&Value::from("export"), &Value::from(false)), "{change}");
    let worker = site.app.worker().spawn();
    stream.until(|change| change["workers"] == true);
    let _ = worker.stop().await.unwrap();
    site.server().kill();
    stream.until(|change| change["away"] == true);
    site.server().restart().unwrap();
    stream.until(|change| change["all"] == true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_page_means_no_reads_and_all_pages_share_one_read() {
    let site = Site::new().await;
    site.export.dispatch("x".into()).await.unwrap();
    let mut streams: Vec<Stream> = (0..3).map(|_| Stream::open(&site)).collect();
    for stream in &mut streams {
        assert_eq!(stream.status(), "200");
        stream.until(|change| change["all"] == true);
    }
    // Each read lists the tasks once.
    let before = site.commands("smembers").await + site.commands("zrange").await + site.commands("evalsha").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let looked =
        site.commands("smembers").await + site.commands("zrange").await + site.commands("evalsha").await - before;
    assert!((2..=40).contains(&looked), "{looked} calls in 3 s for three pages");
    drop(streams);
    until("no page is open", async || {
        let before = site.calls().await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        // The count itself is one call.
        site.calls().await - before <= 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_pages_can_subscribe_and_further_ones_get_503() {
    let site = Site::new().await;
    let mut streams: Vec<Stream> = (0..100).map(|_| Stream::open(&site)).collect();
    assert!(streams.iter_mut().all(|stream| stream.status() == "200"));
    assert_eq!(Stream::open(&site).status(), "503");
    streams.pop();
    until("there is room again", async || Stream::open(&site).status() == "200").await;
}
