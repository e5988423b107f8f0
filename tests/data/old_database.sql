BEGIN TRANSACTION;
CREATE TABLE attempts (
    id          INTEGER PRIMARY KEY,
    job_id      TEXT NOT NULL REFERENCES jobs (id),
    kind        TEXT NOT NULL,
    token_hash  TEXT NOT NULL UNIQUE,  -- of the token in its callback_url
    made_at     BIGINT NOT NULL,
    outcome     TEXT,                  -- NULL: under way, or cut off
    remote_id   TEXT,
    hint        TEXT,
    vouched     INTEGER NOT NULL DEFAULT 0,  -- a person gave the hint, no callback
    UNIQUE (kind, remote_id)           -- what the service made belongs to one attempt
);
INSERT INTO "attempts" VALUES(1,'2222222222','video','cd645c468f7c3c2db1d2ad92c1dacea07cd7ab00fe2bcf6130aea7328c5a278c',1772269200000,'created','remote-2222222222',NULL,0);
INSERT INTO "attempts" VALUES(2,'2323232323','video','f68f9a3c66c5b65a6fe7b67f956a13c08cc814a3b633148d9e1dd3f182d00332',1772269200000,'created','remote-2323232323',NULL,0);
INSERT INTO "attempts" VALUES(3,'2424242424','video','c436c7ccc394a53e45a0ca9a838b4251cca56e0c0d9e66c0a4f9c81dc7deabf1',1772269200000,'created','remote-2424242424',NULL,0);
INSERT INTO "attempts" VALUES(4,'2525252525','video','b1a50fcc9cfb29a19dba11c3aa95495b648498323f0d147f8df4cd239563fa41',1772269200000,'broken',NULL,NULL,0);
INSERT INTO "attempts" VALUES(5,'2626262626','video','3f46529e8b0ec6d06e733a5aae9116b814f7bc92bdcca69425a14e8c16993fdf',1772269200000,'refused',NULL,NULL,0);
INSERT INTO "attempts" VALUES(6,'2727272727','video','168e5ed6532eadb35a2addb564964690191c6da94f6109da74336ef1262ec460',1772269200000,'key',NULL,NULL,0);
INSERT INTO "attempts" VALUES(7,'2828282828','video','8c249df84b5ec22107bee2ed4fd37c15a88ca8db890d92b240ea4996ef675aac',1772269200000,'credit',NULL,NULL,0);
INSERT INTO "attempts" VALUES(8,'2929292929','video','0c807a9433a82d9093d611dc26cbed20a50a632aaa8cc9da4fa470984c7bddfb',1772269200000,'unreachable',NULL,NULL,0);
INSERT INTO "attempts" VALUES(9,'2a2a2a2a2a','video','4f36914b1bafd6d02193d01da713dace6fa4fff3abf53178884b9baedda71b59',1772269200000,'forgotten',NULL,NULL,0);
INSERT INTO "attempts" VALUES(10,'2b2b2b2b2b','video','dbc100fb447996261583b1133d047841cbf87e3e48687182780e16b4acfdc224',1772269200000,'endless',NULL,NULL,0);
INSERT INTO "attempts" VALUES(11,'2c2c2c2c2c','video','ad404f7d420b7a4f6d78c9e75c95fc4dff977060f4969d2fb6f26f860ee477d5',1772269200000,'uncertain',NULL,NULL,0);
INSERT INTO "attempts" VALUES(12,'2d2d2d2d2d','video','f07076761bc7427e4dc6d3b67ad819d62b3199c8dac502be82bd51bae4d3543d',1772269200000,'uncertain',NULL,NULL,0);
INSERT INTO "attempts" VALUES(13,'2e2e2e2e2e','video','95348c55f788edd475aee1b19723b20815366ac2f739bbb08a4b2183f4920b75',1772269200000,'created','late-1',NULL,0);
INSERT INTO "attempts" VALUES(14,'2f2f2f2f2f','video','9f8458a4b7c92116b81a80f07e10e7b9888b2304e083c258aa912d71ccfc3a88',1772269200000,'uncertain',NULL,'late-2',0);
INSERT INTO "attempts" VALUES(15,'2g2g2g2g2g','video','cf495d4cd50bbee37ca08711f86ae1018e9c987e5cddc3b8e58c1834bedee98a',1755162000000,'created','remote-2g2g2g2g2g',NULL,0);
INSERT INTO "attempts" VALUES(16,'2h2h2h2h2h','video','37310548ad476a077c50ff7d21a9c3180b9c3e2cffc20e21fd43b3229088d5f6',1772442000000,'created','remote-2h2h2h2h2h',NULL,0);
INSERT INTO "attempts" VALUES(17,'2j2j2j2j2j','video','ae6675223056419be0c48f917fd535f1d1cf8cf7ed3a1e8f21ae38e30c4c8f07',1772442000000,'created','remote-2j2j2j2j2j',NULL,0);
INSERT INTO "attempts" VALUES(18,'2k2k2k2k2k','video','7ef47eed90b4da09ad62f232b0fc14aba838d969f056203d035cb7725fe9ccbb',1772442000000,'created','remote-2k2k2k2k2k',NULL,0);
INSERT INTO "attempts" VALUES(19,'2m2m2m2m2m','video','59ef91fe42a5e741d535d29e1d2f29d06736a1aa1fa9642fc19d9011e6f60b28',1772442000000,'created','remote-2m2m2m2m2m',NULL,0);
INSERT INTO "attempts" VALUES(20,'2n2n2n2n2n','replica','c8010e02b86028403febbc222f9848f31e6ddf467455ed3a1ac1fc5c154496f2',1772442000000,'created','remote-2n2n2n2n2n',NULL,0);
INSERT INTO "attempts" VALUES(21,'2p2p2p2p2p','video','694b5b037e6f7d43474aeee9825217020fb3a36c9eb1aa3e71e148fd2a56ee60',1772442000000,'uncertain',NULL,NULL,0);
INSERT INTO "attempts" VALUES(22,'2q2q2q2q2q','video','d73f169cbf649da0b49b14770715980d2510e1c60c8024d23c96a0b846d93aaa',1772442000000,'uncertain',NULL,'given-1',1);
INSERT INTO "attempts" VALUES(23,'2r2r2r2r2r','video','006b6a70271a5b2a249ab7573ca6bf7d0c11e347530a8974b6b5aef1e97f2293',1772442000000,'uncertain',NULL,'heard-1',0);
INSERT INTO "attempts" VALUES(24,'2s2s2s2s2s','video','9fa30a87902293a6aebc31a9074aaff4e98be570ac0c93827eed612c2538aacd',1772442000000,'uncertain',NULL,NULL,0);
INSERT INTO "attempts" VALUES(25,'2s2s2s2s2s','video','5298215d76e987ef113942319f7a15ee4eedf8c6776a5009039bc413408813ff',1772442000000,'created','again-1',NULL,0);
INSERT INTO "attempts" VALUES(26,'2v2v2v2v2v','video','7b28a4bf8fe223bf22d56bdb6ee84c35677cc9b194bfd5c569684d2a1a243f84',1772442000000,NULL,NULL,NULL,0);
INSERT INTO "attempts" VALUES(27,'2x2x2x2x2x','video','cd7bcb6bed9e020e11b4f3f110231a5dcbfa37b2a50c80aac0572418f3aa1a95',1772442000000,'created','remote-2x2x2x2x2x',NULL,0);
CREATE TABLE channel_defaults (
    channel     TEXT PRIMARY KEY,
    replica_id  TEXT NOT NULL REFERENCES replicas (id)
);
INSERT INTO "channel_defaults" VALUES('C1','r-2');
CREATE TABLE deliveries (
    id          INTEGER PRIMARY KEY,
    job_id      TEXT NOT NULL REFERENCES jobs (id),
    role        TEXT NOT NULL,
    posting     TEXT NOT NULL,
    channel     TEXT NOT NULL,
    thread_ts   TEXT,
    ts          TEXT,
    wanted      INTEGER NOT NULL DEFAULT 1,
    shown       INTEGER NOT NULL DEFAULT 0,
    due_at      BIGINT,
    claim       INTEGER NOT NULL DEFAULT 0,
    claimed     INTEGER NOT NULL DEFAULT 0,
    failures    INTEGER NOT NULL DEFAULT 0,
    direct      INTEGER NOT NULL DEFAULT 0,
    plain       INTEGER NOT NULL DEFAULT 0,
    sent_at     BIGINT, refusals INTEGER NOT NULL DEFAULT 0,
    UNIQUE (job_id, role)
);
INSERT INTO "deliveries" VALUES(1,'2222222222','card','sending','C1',NULL,NULL,3,0,1772442060000,1,0,0,0,0,1772442000000,0);
INSERT INTO "deliveries" VALUES(2,'2222222222','reply','owed','C1',NULL,NULL,1,0,NULL,0,0,0,0,0,NULL,0);
INSERT INTO "deliveries" VALUES(3,'2323232323','card','uncertain','C0',NULL,NULL,3,0,1772442030000,1,0,0,0,0,1772442000000,0);
INSERT INTO "deliveries" VALUES(4,'2323232323','reply','owed','C0',NULL,NULL,1,0,NULL,0,0,0,0,0,NULL,0);
INSERT INTO "deliveries" VALUES(5,'2424242424','card','lost','C1',NULL,NULL,3,0,NULL,1,0,2,0,0,NULL,3);
INSERT INTO "deliveries" VALUES(6,'2424242424','reply','owed','C1',NULL,NULL,1,0,1772442120000,1,1,0,0,0,NULL,0);
INSERT INTO "deliveries" VALUES(7,'2525252525','card','owed','C0',NULL,NULL,2,0,1772442120000,1,0,1,1,1,NULL,0);
INSERT INTO "deliveries" VALUES(8,'2525252525','reply','owed','C0',NULL,NULL,1,0,NULL,0,0,0,0,0,NULL,0);
INSERT INTO "deliveries" VALUES(9,'2626262626','card','posted','C1',NULL,'1.000005',2,1,1772442180000,1,0,1,0,0,1772442000000,0);
INSERT INTO "deliveries" VALUES(10,'2626262626','reply','owed','C1',NULL,NULL,1,0,1772442120000,1,1,0,0,0,NULL,0);
INSERT INTO "deliveries" VALUES(11,'2727272727','card','posted','C0',NULL,'1.000006',2,2,NULL,1,0,0,0,0,1772442000000,0);
INSERT INTO "deliveries" VALUES(12,'2727272727','reply','owed','C0',NULL,NULL,1,0,1772442000000,0,0,0,0,0,NULL,0);
INSERT INTO "deliveries" VALUES(13,'2828282828','card','sending','C1',NULL,NULL,2,0,1772442060000,1,0,0,0,0,1772442000000,0);
INSERT INTO "deliveries" VALUES(14,'2828282828','reply','owed','C1',NULL,NULL,1,0,NULL,0,0,0,0,0,NULL,0);
INSERT INTO "deliveries" VALUES(15,'2929292929','card','uncertain','C0',NULL,NULL,2,0,1772442030000,1,0,0,0,0,1772442000000,0);
INSERT INTO "deliveries" VALUES(16,'2929292929','reply','owed','C0',NULL,NULL,1,0,NULL,0,0,0,0,0,NULL,0);
INSERT INTO "deliveries" VALUES(17,'2a2a2a2a2a','card','lost','C1',NULL,NULL,2,0,NULL,1,0,2,0,0,NULL,3);
INSERT INTO "deliveries" VALUES(18,'2a2a2a2a2a','reply','owed','C1',NULL,NULL,1,0,1772442000000,0,0,0,0,0,NULL,0);
INSERT INTO "deliveries" VALUES(19,'2b2b2b2b2b','card','owed','C0',NULL,NULL,2,0,1772442120000,1,0,1,1,1,NULL,0);
INSERT INTO "deliveries" VALUES(20,'2b2b2b2b2b','reply','owed','C0',NULL,NULL,1,0,NULL,0,0,0,0,0,NULL,0);
INSERT INTO "deliveries" VALUES(21,'2c2c2c2c2c','card','posted','C1',NULL,'1.000011',3,1,1772442180000,1,0,1,0,0,1772442000000,0);
INSERT INTO "deliveries" VALUES(22,'2c2c2c2c2c','reply','owed','C1',NULL,NULL,1,0,1772442000000,0,0,0,0,0,NULL,0);
INSERT INTO "deliveries" VALUES(23,'2d2d2d2d2d','card','posted','C0',NULL,'1.000012',4,4,NULL,1,0,0,0,0,1772442000000,0);
INSERT INTO "deliveries" VALUES(24,'2d2d2d2d2d','reply','owed','C0',NULL,NULL,1,0,1772442000000,0,0,0,0,0,NULL,0);
INSERT INTO "deliveries" VALUES(25,'2e2e2e2e2e','card','sending','C1',NULL,NULL,4,0,1772442060000,1,0,0,0,0,1772442000000,0);
INSERT INTO "deliveries" VALUES(26,'2e2e2e2e2e','reply','owed','C1',NULL,NULL,1,0,NULL,0,0,0,0,0,NULL,0);
INSERT INTO "deliveries" VALUES(27,'2f2f2f2f2f','card','uncertain','C0',NULL,NULL,3,0,1772442030000,1,0,0,0,0,1772442000000,0);
INSERT INTO "deliveries" VALUES(28,'2f2f2f2f2f','reply','owed','C0',NULL,NULL,1,0,NULL,0,0,0,0,0,NULL,0);
INSERT INTO "deliveries" VALUES(29,'2g2g2g2g2g','card','lost','C1',NULL,NULL,3,0,NULL,1,0,2,0,0,NULL,3);
INSERT INTO "deliveries" VALUES(30,'2g2g2g2g2g','reply','owed','C1',NULL,NULL,1,0,1772442000000,0,0,0,0,0,NULL,0);
INSERT INTO "deliveries" VALUES(31,'2h2h2h2h2h','card','owed','C0',NULL,NULL,2,0,1772442120000,1,0,1,1,1,NULL,0);
INSERT INTO "deliveries" VALUES(32,'2j2j2j2j2j','card','posted','C1',NULL,'1.000017',2,1,1772442180000,1,0,1,0,0,1772442000000,0);
INSERT INTO "deliveries" VALUES(33,'2k2k2k2k2k','card','posted','C0',NULL,'1.000018',3,3,NULL,1,0,0,0,0,1772442000000,0);
INSERT INTO "deliveries" VALUES(34,'2m2m2m2m2m','card','sending','C1',NULL,NULL,2,0,1772442060000,1,0,0,0,0,1772442000000,0);
INSERT INTO "deliveries" VALUES(35,'2n2n2n2n2n','card','uncertain','C0',NULL,NULL,2,0,1772442030000,1,0,0,0,0,1772442000000,0);
INSERT INTO "deliveries" VALUES(36,'2p2p2p2p2p','card','lost','C1',NULL,NULL,3,0,NULL,1,0,2,0,0,NULL,3);
INSERT INTO "deliveries" VALUES(37,'2q2q2q2q2q','card','owed','C0',NULL,NULL,2,0,1772442120000,1,0,1,1,1,NULL,0);
INSERT INTO "deliveries" VALUES(38,'2r2r2r2r2r','card','posted','C1',NULL,'1.000023',2,1,1772442180000,1,0,1,0,0,1772442000000,0);
INSERT INTO "deliveries" VALUES(39,'2s2s2s2s2s','card','posted','C0',NULL,'1.000024',4,4,NULL,1,0,0,0,0,1772442000000,0);
INSERT INTO "deliveries" VALUES(40,'2t2t2t2t2t','card','sending','C1','1700000000.000001',NULL,2,0,1772442060000,1,0,0,0,0,1772442000000,0);
INSERT INTO "deliveries" VALUES(41,'2v2v2v2v2v','card','owed','C0',NULL,NULL,1,0,1772442000000,0,0,0,0,0,NULL,0);
INSERT INTO "deliveries" VALUES(42,'2w2w2w2w2w','card','owed','C1',NULL,NULL,1,0,1772442000000,0,0,0,0,0,NULL,0);
INSERT INTO "deliveries" VALUES(43,'2x2x2x2x2x','card','owed','C0',NULL,NULL,2,0,1772442000000,0,0,0,0,0,NULL,0);
CREATE TABLE jobs (
    id          TEXT PRIMARY KEY,
    request_key TEXT NOT NULL UNIQUE,  -- one job per submission
    kind        TEXT NOT NULL,
    params      TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    channel     TEXT NOT NULL,
    thread_ts   TEXT,
    created_at  BIGINT NOT NULL,
    state       TEXT NOT NULL,
    due_at      BIGINT,                -- leave it alone until then; NULL: for good
    claim       INTEGER NOT NULL DEFAULT 0,
    claimed     INTEGER NOT NULL DEFAULT 0,
    attempts    INTEGER NOT NULL DEFAULT 0,
    failures    INTEGER NOT NULL DEFAULT 0,
    remote_id   TEXT,
    snapshot    TEXT,
    failure     TEXT,
    reason      TEXT NOT NULL DEFAULT '',
    late        INTEGER NOT NULL DEFAULT 0,
    usual       BIGINT,
    started_at  BIGINT,
    read_at     BIGINT,
    woken_at    BIGINT,
    asked_at    BIGINT,
    asked       INTEGER NOT NULL DEFAULT 0,
    strays      TEXT NOT NULL DEFAULT '[]',
    ended_at    BIGINT,
    erased      INTEGER NOT NULL DEFAULT 0
, waits_for TEXT);
INSERT INTO "jobs" VALUES('2222222222','V1','video','{"script": "Script No. 1, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U1','C1',NULL,1772269200000,'succeeded',NULL,3,0,1,0,'remote-2222222222','{"remote_id": "remote-2222222222", "status": "ready", "verdict": "succeeded", "reason": "", "facts": {"download_url": "https://example.com/v.mp4"}}',NULL,'',0,NULL,1772269200000,1772269210000,NULL,NULL,0,'[]',1772269380000,0,NULL);
INSERT INTO "jobs" VALUES('2323232323','V2','video','{"script": "Script No. 2, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U2','C0',NULL,1772269200000,'succeeded',NULL,3,0,1,0,'remote-2323232323','{"remote_id": "remote-2323232323", "status": "ready", "verdict": "succeeded", "reason": "", "facts": {"download_url": "https://example.com/v.mp4"}}',NULL,'',0,180000,1772269200000,1772269210000,NULL,NULL,0,'[]',1772269500000,0,NULL);
INSERT INTO "jobs" VALUES('2424242424','V3','video','{"script": "Script No. 3, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U0','C1',NULL,1772269200000,'succeeded',NULL,3,0,1,0,'remote-2424242424','{"remote_id": "remote-2424242424", "status": "ready", "verdict": "succeeded", "reason": "", "facts": {"download_url": "https://example.com/v.mp4"}}',NULL,'',0,240000,1772269200000,1772269210000,NULL,NULL,0,'[]',1772269740000,0,NULL);
INSERT INTO "jobs" VALUES('2525252525','V4','video','{"script": "Script No. 4, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U1','C0',NULL,1772269200000,'failed',NULL,2,0,1,0,NULL,NULL,'broken','Because broken.',0,300000,NULL,NULL,NULL,NULL,0,'[]',1772269200000,0,NULL);
INSERT INTO "jobs" VALUES('2626262626','V5','video','{"script": "Script No. 5, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U2','C1',NULL,1772269200000,'failed',NULL,2,0,1,0,NULL,NULL,'refused','Because refused.',0,300000,NULL,NULL,NULL,NULL,0,'[]',1772269200000,0,NULL);
INSERT INTO "jobs" VALUES('2727272727','V6','video','{"script": "Script No. 6, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U0','C0',NULL,1772269200000,'failed',NULL,2,0,1,0,NULL,NULL,'key','Because key.',0,300000,NULL,NULL,NULL,NULL,0,'[]',1772269200000,0,NULL);
INSERT INTO "jobs" VALUES('2828282828','V7','video','{"script": "Script No. 7, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U1','C1',NULL,1772269200000,'failed',NULL,2,0,1,0,NULL,NULL,'credit','Because credit.',0,300000,NULL,NULL,NULL,NULL,0,'[]',1772269200000,0,NULL);
INSERT INTO "jobs" VALUES('2929292929','V8','video','{"script": "Script No. 8, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U2','C0',NULL,1772269200000,'failed',NULL,2,0,1,0,NULL,NULL,'unreachable','Because unreachable.',0,300000,NULL,NULL,NULL,NULL,0,'[]',1772269200000,0,NULL);
INSERT INTO "jobs" VALUES('2a2a2a2a2a','V9','video','{"script": "Script No. 9, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U0','C1',NULL,1772269200000,'failed',NULL,2,0,1,0,NULL,NULL,'forgotten','Because forgotten.',0,300000,NULL,NULL,NULL,NULL,0,'[]',1772269200000,0,NULL);
INSERT INTO "jobs" VALUES('2b2b2b2b2b','V10','video','{"script": "Script No. 10, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U1','C0',NULL,1772269200000,'failed',NULL,2,0,1,0,NULL,NULL,'endless','Because endless.',0,300000,NULL,NULL,NULL,NULL,0,'[]',1772269200000,0,NULL);
INSERT INTO "jobs" VALUES('2c2c2c2c2c','V11','video','{"script": "Script No. 11, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U2','C1',NULL,1772269200000,'failed',NULL,2,0,1,0,NULL,NULL,'given_up','',0,300000,NULL,NULL,NULL,NULL,0,'[]',1772269200000,0,NULL);
INSERT INTO "jobs" VALUES('2d2d2d2d2d','V12','video','{"script": "Script No. 12, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U0','C0',NULL,1772269200000,'failed',NULL,4,0,1,0,NULL,NULL,'unanswered','',0,300000,NULL,NULL,NULL,1772269200000,2,'[]',1772269200000,0,NULL);
INSERT INTO "jobs" VALUES('2e2e2e2e2e','V13','video','{"script": "Script No. 13, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U1','C1',NULL,1772269200000,'failed',NULL,4,0,1,0,NULL,NULL,'given_up','',0,300000,NULL,1772269200000,1772269200000,NULL,0,'["late-1"]',1772269200000,0,NULL);
INSERT INTO "jobs" VALUES('2f2f2f2f2f','V14','video','{"script": "Script No. 14, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U2','C0',NULL,1772269200000,'failed',1772442120000,24,1,1,0,NULL,NULL,'given_up','',0,300000,NULL,1772442000000,1772442000000,NULL,0,'[]',1772269200000,0,NULL);
INSERT INTO "jobs" VALUES('2g2g2g2g2g','V15','video','{"replica_id": "r-1"}','U0','C1',NULL,1755162000000,'succeeded',NULL,3,0,1,0,'remote-2g2g2g2g2g','{"remote_id": "remote-2g2g2g2g2g", "status": "generating", "verdict": "going", "reason": "", "facts": {}}',NULL,'',0,300000,1755162000000,1755248400000,NULL,NULL,0,'[]',1755248400000,1,NULL);
INSERT INTO "jobs" VALUES('2h2h2h2h2h','V16','video','{"script": "Script No. 16, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U1','C0',NULL,1772442000000,'running',1772444400000,1,0,1,0,'remote-2h2h2h2h2h','{"remote_id": "remote-2h2h2h2h2h", "status": "generating", "verdict": "going", "reason": "", "facts": {"video_name": "A name"}}',NULL,'',0,420000,1772442000000,NULL,NULL,NULL,0,'[]',NULL,0,NULL);
INSERT INTO "jobs" VALUES('2j2j2j2j2j','V17','video','{"script": "Script No. 17, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U2','C1',NULL,1772442000000,'running',1772444400000,3,0,1,2,'remote-2j2j2j2j2j','{"remote_id": "remote-2j2j2j2j2j", "status": "generating", "verdict": "going", "reason": "", "facts": {"video_name": "A name"}}',NULL,'',0,420000,1772442000000,1772442000000,1772442000000,NULL,0,'[]',NULL,0,NULL);
INSERT INTO "jobs" VALUES('2k2k2k2k2k','V18','video','{"script": "Script No. 18, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U0','C0',NULL,1772442000000,'overdue',1772444400000,2,0,1,3,'remote-2k2k2k2k2k','{"remote_id": "remote-2k2k2k2k2k", "status": "generating", "verdict": "going", "reason": "", "facts": {"video_name": "A name"}}',NULL,'',1,420000,1772442000000,1772442000000,NULL,NULL,0,'[]',NULL,0,NULL);
INSERT INTO "jobs" VALUES('2m2m2m2m2m','V19','video','{"script": "Script No. 19, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U1','C1',NULL,1772442000000,'running',1772444400000,1,0,1,0,'remote-2m2m2m2m2m','{"remote_id": "remote-2m2m2m2m2m", "status": "generating", "verdict": "going", "reason": "", "facts": {"video_name": "A name"}}',NULL,'',0,420000,1772442000000,NULL,NULL,NULL,0,'[]',NULL,0,'r-2');
INSERT INTO "jobs" VALUES('2n2n2n2n2n','V20','replica','{"script": "Script No. 20, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U2','C0',NULL,1772442000000,'running',1772444400000,1,0,1,0,'remote-2n2n2n2n2n','{"remote_id": "remote-2n2n2n2n2n", "status": "generating", "verdict": "going", "reason": "", "facts": {"video_name": "A name"}}',NULL,'',0,NULL,1772442000000,NULL,NULL,NULL,0,'[]',NULL,0,NULL);
INSERT INTO "jobs" VALUES('2p2p2p2p2p','V21','video','{"script": "Script No. 21, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U0','C1',NULL,1772442000000,'unconfirmed',1772444400000,2,0,1,0,NULL,NULL,NULL,'',0,420000,NULL,NULL,NULL,1772442000000,1,'[]',NULL,0,NULL);
INSERT INTO "jobs" VALUES('2q2q2q2q2q','V22','video','{"script": "Script No. 22, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U1','C0',NULL,1772442000000,'unconfirmed',1772444400000,3,0,1,1,NULL,NULL,NULL,'',0,420000,NULL,1772442000000,NULL,NULL,0,'[]',NULL,0,NULL);
INSERT INTO "jobs" VALUES('2r2r2r2r2r','V23','video','{"script": "Script No. 23, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U2','C1',NULL,1772442000000,'unconfirmed',1772444400000,3,0,1,0,NULL,NULL,NULL,'',0,420000,NULL,1772442000000,1772442000000,NULL,0,'[]',NULL,0,NULL);
INSERT INTO "jobs" VALUES('2s2s2s2s2s','V24','video','{"script": "Script No. 24, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U0','C0',NULL,1772442000000,'running',1772444400000,3,0,2,0,'again-1',NULL,NULL,'',0,420000,1772442000000,NULL,NULL,1772442000000,0,'[]',NULL,0,NULL);
INSERT INTO "jobs" VALUES('2t2t2t2t2t','V25','video','{"script": "Script No. 25, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U1','C1','1700000000.000001',1772442000000,'queued',1772444400000,1,0,0,4,NULL,NULL,NULL,'',0,420000,NULL,NULL,NULL,NULL,0,'[]',NULL,0,NULL);
INSERT INTO "jobs" VALUES('2v2v2v2v2v','V26','video','{"script": "Script No. 26, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U2','C0',NULL,1772442000000,'creating',1772442120000,1,1,1,0,NULL,NULL,NULL,'',0,420000,NULL,NULL,NULL,NULL,0,'[]',NULL,0,NULL);
INSERT INTO "jobs" VALUES('2w2w2w2w2w','V27','video','{"script": "Script No. 27, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U0','C1',NULL,1772442000000,'queued',1772442120000,3,1,0,0,NULL,NULL,NULL,'',0,420000,NULL,NULL,NULL,NULL,0,'[]',NULL,0,NULL);
INSERT INTO "jobs" VALUES('2x2x2x2x2x','V28','video','{"script": "Script No. 28, with \u201c\u00fc\u201d.", "replica_id": "r-1"}','U1','C0',NULL,1772442000000,'running',1772442120000,2,1,1,0,'remote-2x2x2x2x2x','{"remote_id": "remote-2x2x2x2x2x", "status": "generating", "verdict": "going", "reason": "", "facts": {"video_name": "A name"}}',NULL,'',0,420000,1772442000000,1772442000000,NULL,NULL,0,'[]',NULL,0,NULL);
CREATE TABLE migrations (name TEXT PRIMARY KEY);
INSERT INTO "migrations" VALUES('0001_jobs');
INSERT INTO "migrations" VALUES('0002_replicas');
INSERT INTO "migrations" VALUES('0003_refusals');
INSERT INTO "migrations" VALUES('0004_waiting_replies');
INSERT INTO "migrations" VALUES('0005_unread_index');
CREATE TABLE replicas (
    id          TEXT PRIMARY KEY,
    used_at     BIGINT NOT NULL
, name TEXT NOT NULL DEFAULT '', sought TEXT NOT NULL DEFAULT '', status TEXT NOT NULL DEFAULT '', verdict TEXT NOT NULL DEFAULT '', reason TEXT NOT NULL DEFAULT '', read_at BIGINT);
INSERT INTO "replicas" VALUES('r-1',1772442000000,'','','','','',NULL);
INSERT INTO "replicas" VALUES('r-2',1772442000000,'Ännä Straße','ännä strasse','training','going','',1772442000000);
INSERT INTO "replicas" VALUES('r-3',1772442000000,'','','error','failed','Too dark.',1772442000000);
INSERT INTO "replicas" VALUES('r-4',1772442000000,'','','deleted','failed','',1772442000000);
CREATE INDEX jobs_due ON jobs (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX jobs_of_user ON jobs (user_id, kind, created_at);
CREATE INDEX jobs_done ON jobs (kind, ended_at) WHERE state = 'succeeded';
CREATE INDEX jobs_to_erase ON jobs (ended_at) WHERE erased = 0 AND ended_at IS NOT NULL;
CREATE INDEX attempts_of_job ON attempts (job_id);
CREATE INDEX deliveries_due ON deliveries (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX jobs_waiting ON jobs (waits_for) WHERE waits_for IS NOT NULL AND ended_at IS NULL;
CREATE INDEX jobs_claimed ON jobs (claimed) WHERE claimed = 1;
CREATE INDEX deliveries_claimed ON deliveries (claimed) WHERE claimed = 1;
COMMIT;
