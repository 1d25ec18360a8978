import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import express from "express";
import { drossel } from "@drossel/client/express";
import { parts, suite } from "./suite.js";

suite("Express", async (options, h) => {
  const app = express();
  app.use(drossel({ ...options, attributes: req => ({ user: req.get("x-user") }) }));
  app.use((req, _res, next) => (h.ran.push(req.path.slice(1)), next()));
  app.post("/orders", (_req, res) => void res.status(201).send("ordered"));
  app.post("/login", (req, res) => {
    const status = Number(req.query["status"]);
    if (status === 599) throw new Error("as the test asked");
    res.status(status).end();
  });
  app.get("/export", (_req, res) => void Readable.from(parts(h)).pipe(res));
  for (const path of ["free", "held", "keyed", "search"]) app.get(`/${path}`, (_req, res) => void res.send(path));
  app.get("/load", (_req, res) => void res.send("loaded"));
  app.use(((_error, _req, res, _next) => void res.status(500).end()) as express.ErrorRequestHandler);
  const server = app.listen(0, "127.0.0.1");
  await new Promise(resolve => server.once("listening", resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close: () => (server.closeAllConnections(), server.close()) };
});
