// An API in Node with Express, limited by Drossel: node express.js

import { drossel } from "@drossel/client/express";
import express from "express";

const app = express();
// app.set("trust proxy", ...) if one stands in front: req.ip is the client then

app.use(
  drossel({
    url: process.env.DROSSEL ?? "http://127.0.0.1:7080",
    deadline: Number(process.env.DEADLINE ?? 25), // milliseconds
    onUnavailable: "allow", // when Drossel itself does not answer
    attributes: req => ({ user: req.get("X-User") }), // yours: the user of a session that you have checked
  }),
);

app.post("/orders", (req, res) => {
  res.status(201).json({ ordered: true });
});

const server = app.listen(process.env.PORT ?? 3000, () => console.log(`listening on port ${server.address().port}`));
