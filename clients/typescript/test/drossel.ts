// A real Drossel for tests, the one that npm run test:build makes.

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Client, type Decision, type Options, type Question, type Together } from "@drossel/client";

const program = fileURLToPath(new URL("drossel", import.meta.url));

export class Drossel {
  /** Where it answers, also when it is started again. */
  url: string;
  readonly #dir = mkdtempSync(join(tmpdir(), "drossel-"));
  #process?: ChildProcess;

  private constructor(on: "unix" | "tcp", readonly text: string, readonly decisions: string) {
    this.url = on === "unix" ? `unix:${this.#dir}/drossel.sock` : "http://127.0.0.1:0";
  }

  /** Starts a Drossel by a policy, on a unix socket or a port of the system's choice. */
  static async start(on: "unix" | "tcp", text: string, decisions = ""): Promise<Drossel> {
    const d = new Drossel(on, text, decisions);
    await d.again();
    return d;
  }

  /** Starts it again, where it was. */
  async again(): Promise<void> {
    const policy = join(this.#dir, "policy.yaml");
    writeFileSync(policy, `decisions: {listen: "${this.url.replace("http://", "")}"${this.decisions}}\n${this.text}`);
    const child = spawn(program, ["serve", policy], { stdio: ["ignore", "ignore", "pipe"] });
    this.#process = child;
    let log = "";
    await new Promise<void>((ready, failed) => {
      child.stderr.setEncoding("utf8").on("data", text => /^ready in /m.test((log += text)) && ready());
      child.on("error", failed).on("exit", () => failed(new Error(`drossel has ended:\n${log}`)));
    });
    this.url = /^decisions +(\S+)/m.exec(log)![1]!;
  }

  signal(name: "SIGSTOP" | "SIGCONT"): void {
    this.#process!.kill(name);
  }

  /** Ends it without a word to anybody. */
  async kill(): Promise<void> {
    const child = this.#process!;
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise(resolve => child.on("exit", resolve));
    child.kill("SIGKILL");
    await ended;
  }

  async stop(): Promise<void> {
    await this.kill();
    rmSync(this.#dir, { recursive: true });
  }
}

/** Starts a Drossel for as long as it is used. */
export async function withDrossel(on: "unix" | "tcp", text: string, use: (d: Drossel) => Promise<void>, decisions = ""): Promise<void> {
  const d = await Drossel.start(on, text, decisions);
  try {
    await use(d);
  } finally {
    await d.stop();
  }
}

/** A client that remembers what was decided, and is more patient than one should be: tests share a machine. */
export class Recorder extends Client {
  readonly seen: Decision[] = [];

  constructor(options: Options) {
    super({ deadline: 20_000, onError: () => {}, ...options });
  }

  override async decide(question: Question | Together): Promise<Decision> {
    const decision = await super.decide(question);
    this.seen.push(decision);
    return decision;
  }
}

/** Waits until something is so. */
export async function until(what: string, is: () => boolean | Promise<boolean>): Promise<void> {
  for (const start = performance.now(); !(await is()); await new Promise(go => setTimeout(go, 5))) {
    if (performance.now() - start > 60_000) throw new Error(`never: ${what}`);
  }
}
