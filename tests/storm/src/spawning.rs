//! Spawns commands, with `posix_spawn` and with `fork` and `exec`, and reads their output.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::crew::Context;
use crate::{gate, tally};

pub fn spawn_worker(context: &mut Context) {
    while context.goes_on() {
        let word = format!("{:x}", context.random.next());
        let mut command = Command::new("/bin/echo");
        command.arg(&word);
        if context.random.once_in(3) {
            // SAFETY: the closure does nothing. Its presence makes the standard library fork.
            unsafe { command.pre_exec(|| Ok(())) };
        }
        let output = gate::with_descriptors(|| command.output())
            .unwrap_or_else(|error| panic!("/bin/echo: {error}"));
        assert!(output.status.success(), "/bin/echo: {}", output.status);
        assert_eq!(
            String::from_utf8_lossy(&output.stdout).trim(),
            word,
            "output of the command"
        );
        tally::SPAWNS.one();
    }
}
