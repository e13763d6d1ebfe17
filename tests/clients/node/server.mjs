/**
 * Starts a real server with the module. Environment variables say what to run:
 *
 * - `OXBLOOM_MODULE`: the path of the module's library (required);
 * - `SERVER_BIN`: the server's program (default: `redis-server`).
 *
 * The server listens on a free loopback port, keeps its files in a temporary folder, and leaves nothing behind.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const HOST = '127.0.0.1';
const READY_WITHIN_MS = 240_000; // even on a busy machine
const ATTEMPTS = 3; // another process may take a free port before the server binds it

function whatToRun() {
  const module = process.env.OXBLOOM_MODULE;
  if (!module) throw new Error("OXBLOOM_MODULE must name the module's .so");
  if (!existsSync(module)) throw new Error(`OXBLOOM_MODULE: no such file: ${module}`);
  return { program: process.env.SERVER_BIN || 'redis-server', module: resolve(module) };
}

async function freePort() {
  const probe = net.createServer().listen(0, HOST);
  await once(probe, 'listening');
  const { port } = probe.address();
  probe.close();
  await once(probe, 'close');
  return port;
}

async function launch(program, module, folder, port, busPort) {
  const cluster = busPort ? ['--cluster-enabled', 'yes', '--cluster-port', busPort] : [];
  const args = ['--bind', HOST, '--port', port, '--dir', folder, '--save', '', ...cluster, '--loadmodule', module];
  const log = openSync(join(folder, 'server.log'), 'w');
  try {
    const child = spawn(program, args.map(String), { stdio: ['ignore', log, log] });
    await once(child, 'spawn');
    return child;
  } catch (error) {
    throw new Error(`SERVER_BIN: cannot run ${program}`, { cause: error });
  } finally {
    closeSync(log);
  }
}

const hasExited = (child) => child.exitCode !== null || child.signalCode !== null;

async function answersPing(port) {
  const socket = net.connect({ host: HOST, port, timeout: 1000 });
  try {
    socket.once('timeout', () => socket.destroy(new Error('timeout')));
    await once(socket, 'connect');
    socket.write('PING\r\n');
    const [reply] = await once(socket, 'data');
    return reply.toString().startsWith('+PONG');
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

async function becomesReady(child, port) {
  const deadline = Date.now() + READY_WITHIN_MS;
  while (!hasExited(child) && Date.now() < deadline) {
    if (await answersPing(port)) return true;
    await sleep(20);
  }
  return false;
}

async function stop(child) {
  if (hasExited(child)) return;
  const exited = once(child, 'exit');
  child.kill('SIGTERM');
  const patience = setTimeout(() => child.kill('SIGKILL'), 10_000);
  await exited;
  clearTimeout(patience);
}

/** Calls `cleanUp` when the run ends, also by a signal. Returns a function that revokes this. */
function onEndOfRun(cleanUp) {
  const exit = () => process.exit(1);
  process.once('exit', cleanUp).once('SIGINT', exit).once('SIGTERM', exit);
  return () => process.off('exit', cleanUp).off('SIGINT', exit).off('SIGTERM', exit);
}

/**
 * Starts a server, as a node of a cluster if `clustered`. Returns its `port`, the `busPort` of a node, and `stop()`, which
 * stops the server and removes its files.
 */
export async function startServer({ clustered = false } = {}) {
  const { program, module } = whatToRun();
  const folder = mkdtempSync(join(tmpdir(), 'oxbloom-clients-'));
  const removeFolder = () => rmSync(folder, { recursive: true, force: true });
  try {
    for (let attempt = 1; ; attempt++) {
      const port = await freePort();
      const busPort = clustered ? await freePort() : undefined;
      const child = await launch(program, module, folder, port, busPort);
      const forget = onEndOfRun(() => {
        child.kill('SIGKILL');
        removeFolder();
      });
      if (await becomesReady(child, port)) {
        return {
          port,
          busPort,
          async stop() {
            await stop(child);
            forget();
            removeFolder();
          },
        };
      }
      await stop(child);
      forget();
      const log = readFileSync(join(folder, 'server.log'), 'utf8');
      if (attempt === ATTEMPTS || !log.includes('Address already in use')) {
        throw new Error(`${program} did not start; its log:\n${log}`);
      }
    }
  } catch (error) {
    removeFolder();
    throw error;
  }
}
