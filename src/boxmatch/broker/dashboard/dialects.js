/** The languages of filters: what is said of each, and examples that fit the attributes of a feed. */

import { exampleFilters, isNumber, quoted } from "./schemas.js";

const isText = ([, type]) => type === "string" || type.includes(" | ");
const isPlain = ([, type]) => type === "bool";

/** Conditions of patterns, by what they are about. */
const CONDITIONS = [
  [isText, '{"prefix": "a"}'],
  [isNumber, '{"numeric": [">=", 0]}'],
  [isText, '{"wildcard": "a*z"}'],
  [isText, '{"anything-but": ["x", "y"]}'],
  [isPlain, "true"],
  [null, '{"exists": true}'],
];

/** Names one inside the other, or with dots where a language does not nest them. */
const nested = (name, values) => name.split(".").reduceRight((inside, key) => `{${JSON.stringify(key)}: ${inside}}`, values);
const flat = (name, values) => `{${JSON.stringify(name)}: ${values}}`;

const patterns = (write) => ({
  name: (name) => JSON.stringify(name),
  examples: (attributes) => written(attributes, CONDITIONS, (name, condition) => write(name, `[${condition}]`)),
});

const expressions = (isName, conditions) => ({
  name: (name) => name,
  examples: (attributes) => written(attributes.filter(([name]) => isName.test(name)), conditions, (name, condition) => condition(name)),
});

function written(attributes, conditions, write) {
  const known = attributes.filter((one) => isText(one) || isNumber(one) || isPlain(one));
  return conditions.flatMap(([isFor, condition]) => {
    const found = isFor === null ? known[0] : known.find(isFor);
    return found === undefined ? [] : [write(found[0], condition)];
  });
}

const SQL = {
  hint: ["A SQL ", ["WHERE"], " expression, or JSON such as ", ['{"price": {"low": 20}}'], "."],
  name: quoted,
  examples: exampleFilters,
};

/** `hint`: texts, and in lists what is code. `name`: an attribute as filters write it. */
const DIALECTS = {
  sql: SQL,
  eventbridge: {
    hint: ["An event pattern of Amazon EventBridge, such as ", ['{"state": ["stopped"]}'], "."],
    ...patterns(nested),
  },
  sns: {
    hint: ["A filter policy of Amazon SNS for message attributes, such as ", ['{"plan": ["gold"]}'], "."],
    ...patterns(flat),
  },
  "sns-body": {
    hint: ["A filter policy of Amazon SNS for message bodies, such as ", ['{"order": {"plan": ["gold"]}}'], "."],
    ...patterns(nested),
  },
  cesql: {
    hint: ["An expression of CloudEvents SQL, such as ", ["type LIKE 'order.%' AND EXISTS subject"], "."],
    ...expressions(/^[a-z][a-z0-9]*$/, [
      [isText, (name) => `${name} LIKE 'a%'`],
      [isNumber, (name) => `${name} > 10`],
      [isText, (name) => `${name} IN ('a', 'b')`],
      [isText, (name) => `LENGTH(${name}) > 3`],
      [null, (name) => `EXISTS ${name}`],
    ]),
  },
  jms: {
    hint: ["A message selector of Jakarta Messaging, such as ", ["price > 20 AND symbol LIKE 'I%'"], "."],
    ...expressions(/^[A-Za-z_$][\w$]*$/, [
      [isText, (name) => `${name} LIKE 'a%'`],
      [isNumber, (name) => `${name} BETWEEN 0 AND 100`],
      [isText, (name) => `${name} IN ('a', 'b')`],
      [isNumber, (name) => `${name} * 2 > 100`],
      [null, (name) => `${name} IS NOT NULL`],
    ]),
  },
};

/** What is known of a language; of one that is not, what is of SQL. */
export const dialectOf = (name) => DIALECTS[name] ?? SQL;
