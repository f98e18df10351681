//! PyTorch in a child process that is asked slice by slice, so that both take turns on one GPU.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What the scripts of all benchmarks begin with. Scripts are part of the programs.
const COMMON: &str = include_str!("peer.py");

/// The child.
pub struct Peer {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts it with a script that prepares cases.
    ///
    /// # Errors
    /// If there is no `python3` (or `PYTHON`), or it has no PyTorch with CUDA.
    pub fn start(script: &str) -> Result<Peer> {
        let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
        let script = format!("{COMMON}\n{script}\nserve(prepare)\n");
        let mut child = Command::new(python).args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else { return Err("no pipe".into()) };
        Ok(Peer { child, requests, answers: BufReader::new(answers) })
    }

    fn ask(&mut self, request: &Value) -> Result<Value> {
        writeln!(self.requests, "{request}")?;
        self.requests.flush()?;
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err("the peer ended".into());
        }
        let answer: Value = serde_json::from_str(&line)?;
        match answer.get("error") {
            Some(error) => Err(format!("the peer: {error}").into()),
            None => Ok(answer),
        }
    }

    /// What it runs.
    pub fn versions(&mut self) -> Result<String> {
        Ok(self.ask(&json!({}))?.as_str().unwrap_or_default().to_owned())
    }

    /// Prepares a case; the script says what it answers.
    pub fn prepare(&mut self, case: &Value) -> Result<Value> {
        self.ask(&json!({ "case": case }))
    }

    /// Seconds of a launch.
    pub fn slice(&mut self, contender: &str, repeats: usize) -> Result<f64> {
        let answer = self.ask(&json!({ "slice": contender, "repeats": repeats }))?;
        answer.as_f64().ok_or_else(|| "the peer answered no number".into())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It ends with its input; where it does not, nobody waits for it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
