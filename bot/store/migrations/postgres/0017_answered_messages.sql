-- Messages to the bot that it has answered with help: Slack may report one more than once.
CREATE TABLE answered_messages (
    channel       TEXT NOT NULL,
    ts            TEXT NOT NULL,
    answered_at   BIGINT NOT NULL,
    PRIMARY KEY (channel, ts)
);
CREATE INDEX answered_messages_by_time ON answered_messages (answered_at);
