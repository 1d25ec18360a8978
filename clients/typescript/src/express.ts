// Middleware for Express, 4 and 5.

import type { Request, RequestHandler } from "express";
import { adapter, type AdapterOptions, closing, endWith } from "./adapter.js";
import { bodyText } from "./index.js";

/** app.use(drossel({ url: "unix:/run/drossel/drossel.sock" })) */
export function drossel(options: AdapterOptions<Request>): RequestHandler {
  const begin = adapter(options);
  return (req, res, next) => {
    const closed = closing(res);
    const incoming = { method: req.method, url: req.originalUrl, host: req.headers.host, ip: req.ip, header: (name: string) => req.headers[name.toLowerCase()] };
    begin(req, incoming, () => closed).then(({ decision, abandoned, end }) => {
      if (abandoned) return;
      for (const [name, value] of Object.entries(decision.headers)) res.setHeader(name, value);
      if (!decision.allowed) {
        res.statusCode = decision.status;
        res.end(bodyText(decision));
        return;
      }
      endWith(closed, res, end);
      next();
    }, next);
  };
}
