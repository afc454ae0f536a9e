//! Debian's Chromium, driven by its chromedriver.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use thirtyfour::common::capabilities::chromium::ChromiumLikeCapabilities;
use thirtyfour::{By, DesiredCapabilities, Key, LoggingPrefsLogLevel, WebDriver, WebElement};

/// The longest wait for a condition.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The time between two checks.
const PAUSE: Duration = Duration::from_millis(50);

/// Waits until the condition is true.
pub async fn until(what: &str, so: impl AsyncFnMut() -> bool) {
    until_within(PATIENCE, what, so).await;
}

/// The same with a longer wait.
pub async fn until_within(patience: Duration, what: &str, mut so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !so().await {
        assert!(begun.elapsed() < patience, "timed out after {patience:?} waiting until {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// A temporary directory that is removed on drop.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("heartline-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A chromedriver, killed on drop, with its browser. A shell next to it holds a pipe, and does the same when this
/// process is killed.
struct Chromedriver {
    shell: Child,
    port: u16,
}

impl Chromedriver {
    fn start(program: &Path, profile: &Path) -> Result<Chromedriver, String> {
        let script = r#""$0" --port=0 & driver=$!; read -r _; trap '' TERM; kill 0; wait "$driver"; rm -rf "$1" || { sleep 1; rm -rf "$1"; }"#;
        let mut command = Command::new("sh");
        // A process group of its own, for `kill 0`.
        command.arg("-c").arg(script).arg(program).arg(profile).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut shell = command.spawn().map_err(|e| format!("cannot start chromedriver: {e}"))?;
        let output = BufReader::new(shell.stdout.take().unwrap()).lines().map_while(Result::ok);
        let port = output
            .filter_map(|line| line.split("started successfully on port ").nth(1).map(str::to_owned))
            .find_map(|rest| rest.trim_end_matches('.').parse().ok());
        let mut driver = Chromedriver { shell, port: 0 };
        driver.port = port.ok_or("chromedriver ended before it listened")?;
        // Dropping its output closes the pipe: it writes nothing more there.
        driver.shell.stdout = None;
        Ok(driver)
    }
}

impl Drop for Chromedriver {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// The first of these programs on the path.
fn program(names: &[&str]) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut found = names.iter().flat_map(|name| dirs.iter().map(move |dir| dir.join(name)));
    found.find(|file| file.is_file()).ok_or_else(|| {
        format!("missing: {}; get it with 'apt-get install chromium chromium-driver'", names.join(" or "))
    })
}

/// One browser with one window.
pub struct Browser {
    pub driver: WebDriver,
    _chromedriver: Chromedriver,
    _profile: Scratch,
}

impl Browser {
    /// Starts it, or returns what is missing in one line.
    pub async fn start() -> Result<Browser, String> {
        let (chromedriver, chromium) =
            (program(&["chromedriver"])?, program(&["chromium", "chromium-browser", "google-chrome"])?);
        let profile = Scratch::new("browser");
        let chromedriver = Chromedriver::start(&chromedriver, &profile.0)?;
        let mut wanted = DesiredCapabilities::chrome();
        let data = format!("--user-data-dir={}", profile.0.join("data").display());
        let mut set = || -> thirtyfour::error::WebDriverResult<()> {
            wanted.set_binary(&chromium.display().to_string())?;
            for arg in [
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--disable-dev-shm-usage",
                "--window-size=1280,800",
                // The name of another site that resolves to this machine.
                "--host-resolver-rules=MAP evil.example 127.0.0.1",
                &data,
            ] {
                wanted.add_arg(arg)?;
            }
            wanted.set_browser_log_level(LoggingPrefsLogLevel::All)
        };
        set().map_err(|e| e.to_string())?;
        let driver = WebDriver::new(format!("http://127.0.0.1:{}", chromedriver.port), wanted).await;
        let driver = driver.map_err(|e| format!("chromium does not start: {e}"))?;
        driver.set_page_load_timeout(PATIENCE).await.map_err(|e| e.to_string())?;
        Ok(Browser { driver, _chromedriver: chromedriver, _profile: profile })
    }

    pub async fn quit(&self) {
        let _ = self.driver.clone().quit().await;
    }

    /// Resets it for the next part.
    pub async fn reset(&self) {
        self.open("about:blank").await;
        self.script(true).await;
        self.dark(false).await;
        self.size(1280, 800).await;
        self.cdp("Network.clearBrowserCookies", json!({})).await;
        let _ = self.driver.browser_log().await;
    }

    pub async fn cdp(&self, method: &str, params: Value) -> Value {
        self.driver.cdp().send_raw(method, params).await.unwrap_or_else(|e| panic!("{method}: {e}"))
    }

    /// Whether pages may run scripts.
    pub async fn script(&self, may: bool) {
        self.cdp("Emulation.setScriptExecutionDisabled", json!({ "value": !may })).await;
    }

    /// Whether the user prefers dark mode.
    pub async fn dark(&self, is_dark: bool) {
        let value = if is_dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": value }]);
        self.cdp("Emulation.setEmulatedMedia", json!({ "features": features })).await;
    }

    pub async fn size(&self, width: u64, height: u64) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.cdp("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// Opens a page, and waits until it has loaded.
    pub async fn open(&self, url: &str) {
        self.driver.goto(url).await.unwrap_or_else(|e| panic!("{url}: {e}"));
    }

    /// What a script returns.
    pub async fn eval(&self, script: &str) -> Value {
        self.eval_with(script, Vec::new()).await
    }

    /// The same with arguments.
    pub async fn eval_with(&self, script: &str, args: Vec<Value>) -> Value {
        let output = self.driver.execute(script, args).await.unwrap_or_else(|e| panic!("{script}: {e}"));
        output.json().clone()
    }

    /// What a script passes to its last argument, a function.
    pub async fn eval_late(&self, script: &str) -> Value {
        let output = self.driver.execute_async(script, Vec::new()).await.unwrap_or_else(|e| panic!("{script}: {e}"));
        output.json().clone()
    }

    pub async fn eval_text(&self, script: &str) -> String {
        self.eval(script).await.as_str().unwrap_or_default().to_owned()
    }

    /// The text of the main part.
    pub async fn text(&self) -> String {
        self.eval_text("return (document.querySelector('main') || document.body).innerText").await
    }

    /// The heading.
    pub async fn heading(&self) -> String {
        self.eval_text("const h = document.querySelector('h1'); return h ? h.textContent.trim() : ''").await
    }

    pub async fn until_heading(&self, wanted: &str) {
        until(&format!("the heading is {wanted:?}"), async || self.heading().await == wanted).await;
    }

    pub async fn until_text(&self, part: &str) {
        until(&format!("the page says {part:?}"), async || self.text().await.contains(part)).await;
    }

    /// The status of the response for the page.
    pub async fn status(&self) -> u64 {
        let status = "return performance.getEntriesByType('navigation')[0].responseStatus";
        self.eval(status).await.as_u64().unwrap()
    }

    /// How many elements match.
    pub async fn count(&self, css: &str) -> u64 {
        let count = "return document.querySelectorAll(arguments[0]).length";
        self.eval_with(count, vec![json!(css)]).await.as_u64().unwrap()
    }

    /// Clicks on the first matching element as soon as it exists.
    pub async fn click(&self, css: &str) {
        self.act(css, async || self.driver.find(By::Css(css)).await?.click().await).await;
    }

    /// Clicks on the matching element with this text.
    pub async fn click_text(&self, css: &str, text: &str) {
        let find = "return [...document.querySelectorAll(arguments[0])].find(e => e.textContent.trim() === arguments[1]) || null";
        self.act(&format!("{css} {text:?}"), async || {
            let found = self.driver.execute(find, vec![json!(css), json!(text)]).await?;
            let element: WebElement = found.element()?;
            element.click().await
        })
        .await;
    }

    /// Replaces the text of a field by typing.
    pub async fn fill(&self, css: &str, text: &str) {
        self.act(css, async || {
            let field = self.driver.find(By::Css(css)).await?;
            field.clear().await?;
            field.send_keys(text).await
        })
        .await;
    }

    /// Tries again while one page replaces another.
    async fn act(&self, what: &str, mut act: impl AsyncFnMut() -> thirtyfour::error::WebDriverResult<()>) {
        let begun = Instant::now();
        while let Err(e) = act().await {
            assert!(begun.elapsed() < PATIENCE, "{what}: {e}");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Presses keys, wherever the focus is.
    pub async fn keys(&self, keys: &str) {
        self.is_painted().await;
        self.driver.action_chain().send_keys(keys).perform().await.unwrap_or_else(|e| panic!("{keys:?}: {e}"));
    }

    /// Waits until the page is painted: a browser drops earlier keys.
    async fn is_painted(&self) {
        let script = "return performance.getEntriesByType('paint').length > 0";
        until("the page is painted", async || self.eval(script).await == true).await;
    }

    /// Presses one of the other keys.
    pub async fn press(&self, key: Key) {
        self.is_painted().await;
        self.driver.action_chain().send_keys(key).perform().await.unwrap_or_else(|e| panic!("a key: {e}"));
    }

    /// A description of the element with the focus: its text, or its name.
    pub async fn focused(&self) -> String {
        let script = "const e = document.activeElement; return !e || e === document.body ? '' : (e.getAttribute('aria-label') || e.name || e.textContent.trim())";
        self.eval_text(script).await
    }

    /// Entries of the browser log that our pages must not cause: refusals by the policy, and script errors.
    pub async fn complaints(&self) -> Vec<String> {
        let log = self.driver.browser_log().await.unwrap_or_else(|e| panic!("the log of the browser: {e}"));
        let is_bad = |text: &str| {
            ["Content Security Policy", "content security policy", "Uncaught", "violates"]
                .iter()
                .any(|bad| text.contains(bad))
        };
        log.into_iter().map(|entry| entry.message).filter(|text| is_bad(text)).collect()
    }

    /// Its address and its text, for a failed test.
    pub async fn description(&self) -> String {
        let url = self.driver.current_url().await.map(|url| url.to_string()).unwrap_or_default();
        let text = "return (document.querySelector('main') || document.body).innerText";
        let text = self.driver.execute(text, Vec::new()).await.ok();
        let text = text.and_then(|text| text.json().as_str().map(str::to_owned)).unwrap_or_default();
        format!("  at {url}\n  {}", text.chars().take(2000).collect::<String>().replace('\n', "\n  "))
    }
}
