#!/usr/bin/env node
import { text } from 'node:stream/consumers';
import type { WriteStream } from 'node:tty';
import { systemClock } from '@margay/client';
import { runCli } from './cli';
import { readEnvironment } from './config';
import type { Output, Terminal } from './terminal';

const outputOf = (stream: WriteStream): Output => ({
  write: (content) => void stream.write(content),
  isTerminal: Boolean(stream.isTTY),
  get columns() {
    return stream.columns ?? 80;
  },
});

function systemTerminal(): Terminal {
  return {
    stdout: outputOf(process.stdout),
    stderr: outputOf(process.stderr),
    environment: readEnvironment(),
    folder: process.cwd(),
    clock: systemClock,
    readInput: () => text(process.stdin),
    onInterrupt: (callback) => {
      process.on('SIGINT', callback);
      return () => void process.off('SIGINT', callback);
    },
  };
}

// `margay tail ID | head` closes our output: nobody reads any more, so there is nothing left to do.
process.stdout.on('error', (error: NodeJS.ErrnoException) => process.exit(error.code === 'EPIPE' ? 0 : 1));

void runCli(process.argv.slice(2), systemTerminal()).then((code) => {
  process.exitCode = code;
});
