import { Elysia } from "elysia";
import { drossel } from "@drossel/client/elysia";
import { parts, suite } from "./suite.js";

suite("Elysia", async (options, h) => {
  const app = new Elysia({ serve: { idleTimeout: 0 } })
    .derive(({ headers }) => ({ session: { user: headers["x-user"] } }))
    .use(drossel<{ session: { user?: string } }>({ ...options, attributes: c => ({ user: c.session.user }) }))
    .onBeforeHandle(({ path }) => void h.ran.push(path.slice(1)))
    .onError(({ set }) => ((set.status = 500), ""))
    .post("/orders", ({ status, session }) => (session.user === "none" ? status(500) : status(201, "ordered")))
    .post("/login", ({ query, set }) => {
      const status = Number(query["status"]);
      if (status === 599) throw new Error("as the test asked");
      if (status !== 401) return new Response(null, { status });
      set.status = "Unauthorized";
      return "";
    })
    .get("/export", async function* () {
      for await (const part of parts(h)) yield new TextDecoder().decode(part);
    })
    .get("/free", () => "free")
    .get("/held", () => "held")
    .get("/keyed", () => "keyed")
    .get("/search", () => "search")
    .get("/load", () => "loaded")
    .listen({ port: 0, hostname: "127.0.0.1" });
  return { url: `http://127.0.0.1:${app.server!.port}`, close: () => app.stop(true) };
});
